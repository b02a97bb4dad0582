"""The former place of `wormhole.ports.log_times`, for packages of the release before. The next one drops it."""

from wormhole.ports.log_times import begins_later, time_text

__all__ = ["begins_later", "time_text"]
