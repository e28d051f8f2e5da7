"""What a caller does about each error number of NVML: one of our five classes.

A number that is not here is newer than this table, and means Unavailable.
"""

from api import errors

MEANINGS: dict[int, type[errors.ElasticGPUError]] = {
    1: errors.Unavailable,  # UNINITIALIZED
    2: errors.Invalid,  # INVALID_ARGUMENT
    3: errors.Invalid,  # NOT_SUPPORTED
    4: errors.Invalid,  # NO_PERMISSION
    5: errors.Conflict,  # ALREADY_INITIALIZED
    6: errors.Invalid,  # NOT_FOUND
    7: errors.Invalid,  # INSUFFICIENT_SIZE
    8: errors.Unavailable,  # INSUFFICIENT_POWER
    9: errors.Unavailable,  # DRIVER_NOT_LOADED
    10: errors.Unavailable,  # TIMEOUT
    11: errors.Unavailable,  # IRQ_ISSUE
    12: errors.Unavailable,  # LIBRARY_NOT_FOUND
    13: errors.Invalid,  # FUNCTION_NOT_FOUND
    14: errors.Unavailable,  # CORRUPTED_INFOROM
    15: errors.Unavailable,  # GPU_IS_LOST
    16: errors.Unavailable,  # RESET_REQUIRED
    17: errors.Unavailable,  # OPERATING_SYSTEM
    18: errors.Unavailable,  # LIB_RM_VERSION_MISMATCH
    19: errors.Conflict,  # IN_USE
    20: errors.Unavailable,  # MEMORY
    21: errors.NotReady,  # NO_DATA
    22: errors.Invalid,  # VGPU_ECC_NOT_SUPPORTED
    23: errors.NotReady,  # INSUFFICIENT_RESOURCES
    24: errors.Invalid,  # FREQ_NOT_SUPPORTED
    25: errors.Invalid,  # ARGUMENT_VERSION_MISMATCH
    26: errors.Invalid,  # DEPRECATED
    27: errors.NotReady,  # NOT_READY
    28: errors.Invalid,  # GPU_NOT_FOUND
    29: errors.Conflict,  # INVALID_STATE
    30: errors.Invalid,  # RESET_TYPE_NOT_SUPPORTED
    999: errors.Unavailable,  # UNKNOWN
}


def meaning(number: int | None) -> type[errors.ElasticGPUError]:
    return errors.Unavailable if number is None else MEANINGS.get(number, errors.Unavailable)
