"""Stable Diffusion 1.x and 2.x: from a prompt to pictures, on every device.

from ubridge.models.diffusion import StableDiffusion

model = StableDiffusion.load("stable-diffusion-v1-5")
pictures = model("a rusty robot on a beach", seed=1)
"""

from ubridge.models.diffusion.design import VERSIONS, TextDesign, UNetDesign, VaeDesign, Version
from ubridge.models.diffusion.pipeline import StableDiffusion
from ubridge.models.diffusion.schedule import SCHEDULES, Schedule, Training, schedule

__all__ = [
    "SCHEDULES",
    "VERSIONS",
    "Schedule",
    "StableDiffusion",
    "TextDesign",
    "Training",
    "UNetDesign",
    "VaeDesign",
    "Version",
    "schedule",
]
