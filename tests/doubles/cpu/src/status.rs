//! HIP's error numbers, as its header has them.

use std::ffi::CStr;

/// The status returned by a failed call.
pub type Status = i32;
pub type Done<T = ()> = Result<T, Status>;

macro_rules! statuses {
    ($($constant:ident = $number:literal $name:literal $text:literal;)*) => {
        $(pub const $constant: Status = $number;)*

        /// `hipErrorInvalidValue`.
        pub fn name(status: Status) -> &'static CStr {
            match status {
                0 => c"hipSuccess",
                $($number => $name,)*
                _ => c"hipErrorUnknown",
            }
        }

        /// A description in one line.
        pub fn text(status: Status) -> &'static CStr {
            match status {
                0 => c"no error",
                $($number => $text,)*
                _ => c"unknown error",
            }
        }
    };
}

statuses! {
    INVALID_VALUE = 1 c"hipErrorInvalidValue" c"invalid argument";
    OUT_OF_MEMORY = 2 c"hipErrorOutOfMemory" c"out of memory";
    INVALID_CONFIGURATION = 9 c"hipErrorInvalidConfiguration" c"invalid configuration argument";
    INVALID_PITCH = 12 c"hipErrorInvalidPitchValue" c"invalid pitch argument";
    INVALID_DIRECTION = 21 c"hipErrorInvalidMemcpyDirection" c"invalid copy direction for memcpy";
    NO_DEVICE = 100 c"hipErrorNoDevice" c"no ROCm-capable device is detected";
    INVALID_DEVICE = 101 c"hipErrorInvalidDevice" c"invalid device ordinal";
    INVALID_IMAGE = 200 c"hipErrorInvalidImage" c"device kernel image is invalid";
    INVALID_HANDLE = 400 c"hipErrorInvalidHandle" c"invalid resource handle";
    NOT_FOUND = 500 c"hipErrorNotFound" c"named symbol not found";
    NOT_READY = 600 c"hipErrorNotReady" c"device not ready";
    ILLEGAL_ADDRESS = 700 c"hipErrorIllegalAddress" c"an illegal memory access was encountered";
    OUT_OF_RESOURCES = 701 c"hipErrorLaunchOutOfResources" c"out of resources";
    PEER_ALREADY = 704 c"hipErrorPeerAccessAlreadyEnabled" c"peer access is already enabled";
    LAUNCH_FAILURE = 719 c"hipErrorLaunchFailure" c"unspecified launch failure";
    NOT_SUPPORTED = 801 c"hipErrorNotSupported" c"operation not supported";
    CAPTURE_UNSUPPORTED = 900 c"hipErrorStreamCaptureUnsupported" c"operation not permitted when stream is capturing";
    CAPTURE_INVALIDATED = 901 c"hipErrorStreamCaptureInvalidated" c"operation failed due to a previous error during capture";
    CAPTURE_MERGE = 902 c"hipErrorStreamCaptureMerge" c"operation would result in a merge of separate capture sequences";
    CAPTURE_UNMATCHED = 903 c"hipErrorStreamCaptureUnmatched" c"capture was not ended in the same stream as it began";
    CAPTURE_UNJOINED = 904 c"hipErrorStreamCaptureUnjoined" c"capturing stream has unjoined work";
    CAPTURE_ISOLATION = 905 c"hipErrorStreamCaptureIsolation" c"dependency created on uncaptured work in another stream";
    CAPTURED_EVENT = 907 c"hipErrorCapturedEvent" c"operation not permitted on an event last recorded in a capturing stream";
    UNKNOWN = 999 c"hipErrorUnknown" c"unknown error";
    CAPTURE_WRONG_THREAD = 908 c"hipErrorStreamCaptureWrongThread" c"attempt to terminate a thread-local capture sequence from another thread";
}
