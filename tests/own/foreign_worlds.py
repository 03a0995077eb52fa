"""Four environments from elsewhere, as their users would name them; each is imported when it is asked for."""

import gymnasium


def foraging(seed: int):
    """Level-based foraging as it comes: positions of the last episode outlive a reset."""
    import lbforaging  # noqa: F401

    return gymnasium.make("Foraging-5x5-2p-1f-v3", disable_env_checker=True)


LAYOUTS = ("x.x\n.g.\n", "xx.\n..g\n", ".xx\ng..\n")


def warehouse(seed: int):
    """A warehouse of six cells, small enough for random play to deliver a shelf now and then; tasks are layouts."""
    from rware.warehouse import RewardType, Warehouse

    return Warehouse(
        shelf_columns=1,
        column_height=1,
        shelf_rows=1,
        n_agents=2,
        msg_bits=0,
        sensor_range=1,
        request_queue_size=1,
        max_inactivity_steps=None,
        max_steps=40,
        reward_type=RewardType.GLOBAL,
        layout=LAYOUTS[seed % len(LAYOUTS)],
    )


def speaker(seed: int):
    """A speaker and a listener, who always pay for the distance to a landmark."""
    from mpe2 import simple_speaker_listener_v4

    return simple_speaker_listener_v4.parallel_env(max_cycles=10)


def spread(seed: int):
    """JaxMARL's particles: always below zero, too."""
    import jaxmarl

    return jaxmarl.make("MPE_simple_spread_v3")
