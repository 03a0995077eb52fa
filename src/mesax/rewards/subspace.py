"""M_*, the high-reward subspace, as data: points in feature space with their clusters, and visits to each."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int


class HighRewardSet(eqx.Module):
    """M_* with its clusters, padded to a fixed capacity so that one compiled program serves every seed."""

    members: Float[Array, "capacity features"]
    values: Float[Array, " capacity"]
    valid: Bool[Array, " capacity"]
    member_cluster: Int[Array, " capacity"]
    centroids: Float[Array, "clusters features"]
    cluster_valid: Bool[Array, " clusters"]

    def points(self) -> np.ndarray:
        """The members that there are."""
        return np.asarray(self.members)[np.asarray(self.valid)]

    def centers(self) -> np.ndarray:
        """The centroids that there are."""
        return np.asarray(self.centroids)[np.asarray(self.cluster_valid)]


class CoverageState(eqx.Module):
    """The subspace and how often earlier policies visit each cluster."""

    subspace: HighRewardSet
    visits: Float[Array, " clusters"]
    """Global pseudo-count N-hat."""

    def least_visits(self) -> Float[Array, ""]:
        """The smallest global count among the clusters there are."""
        return jnp.min(jnp.where(self.subspace.cluster_valid, self.visits, jnp.inf))
