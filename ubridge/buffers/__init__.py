"""Operations on buffers with layouts, for frameworks with tensors of their own."""

import ubridge.prepare.backends  # noqa: F401 -- tells executors how to launch
