"""The configuration file: TOML parsed once into frozen values, every complaint in one report.

``fields``, ``processes`` and ``model`` say what can be configured, ``report``
gathers complaints and ``load`` reads TOML and JSON. docs/configuration.md lists every key.
"""

from wormhole.config.candidates import preference
from wormhole.config.fields import check_address
from wormhole.config.load import (
    application_from_json,
    check_together,
    config_to_json,
    dataset_from_json,
    find_application,
    find_log,
    load,
    parse,
    parse_json,
    plain,
    to_json,
    to_json_file,
    unknown_application,
    unknown_application_hint,
)
from wormhole.config.model import (
    EXISTING,
    FAILOVER,
    ApplicationConfig,
    ArchiveConfig,
    CaravanCaps,
    Config,
    CopyConfig,
    DatasetConfig,
    ExistingRows,
    FailoverConfig,
    LogConfig,
    RetryConfig,
    SourceConfig,
)
from wormhole.config.processes import (
    CoordinatorConfig,
    CoordinatorForm,
    MonitorConfig,
    PublisherConfig,
    RestartConfig,
    TlsFiles,
)
from wormhole.config.relay import RelayMode, what_is_recorded
from wormhole.config.sources import (
    bound,
    check_candidates,
    check_formats,
    listed,
    published,
    relay_of,
    source_of,
    unlisted,
)
from wormhole.config.toml_text import sources_to_toml, to_toml

__all__ = [
    "EXISTING",
    "FAILOVER",
    "ApplicationConfig",
    "ArchiveConfig",
    "CaravanCaps",
    "Config",
    "CoordinatorConfig",
    "CoordinatorForm",
    "CopyConfig",
    "DatasetConfig",
    "ExistingRows",
    "FailoverConfig",
    "LogConfig",
    "MonitorConfig",
    "PublisherConfig",
    "RelayMode",
    "RestartConfig",
    "RetryConfig",
    "SourceConfig",
    "TlsFiles",
    "application_from_json",
    "bound",
    "check_address",
    "check_candidates",
    "check_formats",
    "check_together",
    "config_to_json",
    "dataset_from_json",
    "find_application",
    "find_log",
    "listed",
    "load",
    "parse",
    "parse_json",
    "plain",
    "preference",
    "published",
    "relay_of",
    "source_of",
    "sources_to_toml",
    "to_json",
    "to_json_file",
    "to_toml",
    "unknown_application",
    "unknown_application_hint",
    "unlisted",
    "what_is_recorded",
]
