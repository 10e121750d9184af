"""Stable Diffusion 1.x and 2.x: from a prompt to pictures, on every device."""

from ubridge.models.diffusion.schedule import SCHEDULES, Schedule, Training, schedule

__all__ = ["SCHEDULES", "Schedule", "Training", "schedule"]
