# mesax on a CPU: docker build -t mesax . && docker run --rm -v "$PWD/runs:/runs" mesax run mesa climb-one --preset smoke
# For an NVIDIA GPU: docker build --build-arg EXTRAS=cuda12 -t mesax . && docker run --gpus all ...
ARG PYTHON=3.13
FROM python:${PYTHON}-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:${PYTHON}-slim
ARG EXTRAS=mujoco,envs,tensorboard
COPY constraints.txt /tmp/constraints.txt
COPY --from=build /wheels /tmp/wheels
RUN pip install --no-cache-dir --constraint /tmp/constraints.txt "$(ls /tmp/wheels/*.whl)[${EXTRAS}]" \
 && rm -r /tmp/wheels /tmp/constraints.txt \
 && useradd --create-home mesax \
 && install --directory --owner mesax /runs /cache
USER mesax
# Run directories go to the volume; compiled programs stay with the container unless /cache is a volume too.
ENV MESAX_CACHE_DIR=/cache
WORKDIR /
VOLUME /runs
ENTRYPOINT ["mesax"]
CMD ["doctor"]
