"""A DRA kubelet plugin for any device. This package re-exports the contract and opens nothing."""

from kubeletplugin.contract import ClaimRef, Condition, DeviceHealth, Driver, Health, Options, PreparedDevice

__all__ = ["ClaimRef", "Condition", "DeviceHealth", "Driver", "Health", "Options", "PreparedDevice"]
