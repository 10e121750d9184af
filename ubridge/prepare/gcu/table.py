"""The lowerings to Ubridge's kernels, for GCUs."""

from __future__ import annotations

from ubridge.core.lowering import Lowerings
from ubridge.prepare.gcu import composed, copies, elementwise, indexing, products, rows

GCU: Lowerings = {
    **elementwise.LOWERINGS,
    **copies.LOWERINGS,
    **indexing.LOWERINGS,
    **rows.LOWERINGS,
    **products.LOWERINGS,
    **composed.LOWERINGS,
}
