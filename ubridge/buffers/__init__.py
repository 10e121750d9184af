"""Operations on buffers with layouts, for frameworks with tensors of their own."""

import ubridge.prepare.backends  # noqa: F401 -- executors learn from it how to launch
