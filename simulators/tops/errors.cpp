// Names and texts of results. The text of a refusal is the simulator's own text.
#include <map>
#include <string>

#include "call.h"

using namespace tops_sim;

namespace {

#define NAME(result) {result, #result},
// clang-format off
const std::map<topsError_t, std::string> names = {
    NAME(topsSuccess)
    NAME(topsErrorInvalidValue)
    NAME(topsErrorOutOfMemory)
    NAME(topsErrorNotInitialized)
    NAME(topsErrorDeinitialized)
    NAME(topsErrorProfilerDisabled)
    NAME(topsErrorProfilerNotInitialized)
    NAME(topsErrorProfilerAlreadyStarted)
    NAME(topsErrorProfilerAlreadyStopped)
    NAME(topsErrorInvalidConfiguration)
    NAME(topsErrorInvalidPitchValue)
    NAME(topsErrorInvalidSymbol)
    NAME(topsErrorInvalidDevicePointer)
    NAME(topsErrorInvalidMemcpyDirection)
    NAME(topsErrorInsufficientDriver)
    NAME(topsErrorMissingConfiguration)
    NAME(topsErrorPriorLaunchFailure)
    NAME(topsErrorInvalidDeviceFunction)
    NAME(topsErrorNoDevice)
    NAME(topsErrorInvalidDevice)
    NAME(topsErrorInvalidImage)
    NAME(topsErrorInvalidContext)
    NAME(topsErrorContextAlreadyCurrent)
    NAME(topsErrorMapFailed)
    NAME(topsErrorUnmapFailed)
    NAME(topsErrorArrayIsMapped)
    NAME(topsErrorAlreadyMapped)
    NAME(topsErrorNoBinaryForGcu)
    NAME(topsErrorAlreadyAcquired)
    NAME(topsErrorNotMapped)
    NAME(topsErrorNotMappedAsArray)
    NAME(topsErrorNotMappedAsPointer)
    NAME(topsErrorECCNotCorrectable)
    NAME(topsErrorUnsupportedLimit)
    NAME(topsErrorContextAlreadyInUse)
    NAME(topsErrorPeerAccessUnsupported)
    NAME(topsErrorInvalidKernelFile)
    NAME(topsErrorInvalidGraphicsContext)
    NAME(topsErrorInvalidSource)
    NAME(topsErrorFileNotFound)
    NAME(topsErrorSharedObjectSymbolNotFound)
    NAME(topsErrorSharedObjectInitFailed)
    NAME(topsErrorOperatingSystem)
    NAME(topsErrorInvalidHandle)
    NAME(topsErrorIllegalState)
    NAME(topsErrorNotFound)
    NAME(topsErrorNotReady)
    NAME(topsErrorIllegalAddress)
    NAME(topsErrorLaunchOutOfResources)
    NAME(topsErrorLaunchTimeOut)
    NAME(topsErrorPeerAccessAlreadyEnabled)
    NAME(topsErrorPeerAccessNotEnabled)
    NAME(topsErrorSetOnActiveProcess)
    NAME(topsErrorContextIsDestroyed)
    NAME(topsErrorAssert)
    NAME(topsErrorHostMemoryAlreadyRegistered)
    NAME(topsErrorHostMemoryNotRegistered)
    NAME(topsErrorLaunchFailure)
    NAME(topsErrorCooperativeLaunchTooLarge)
    NAME(topsErrorNotSupported)
    NAME(topsErrorStreamCaptureUnsupported)
    NAME(topsErrorStreamCaptureInvalidated)
    NAME(topsErrorStreamCaptureMerge)
    NAME(topsErrorStreamCaptureUnmatched)
    NAME(topsErrorStreamCaptureUnjoined)
    NAME(topsErrorStreamCaptureIsolation)
    NAME(topsErrorStreamCaptureImplicit)
    NAME(topsErrorCapturedEvent)
    NAME(topsErrorStreamCaptureWrongThread)
    NAME(topsErrorGraphExecUpdateFailure)
    NAME(topsErrorUnknown)
    NAME(topsErrorRuntimeMemory)
    NAME(topsErrorRuntimeOther)
    NAME(topsErrorTbd)
};
// clang-format on
#undef NAME

const std::string &name_of(topsError_t code) {
    const auto found = names.find(code);
    return found == names.end() ? names.at(topsErrorUnknown) : found->second;
}

} // namespace

topsError_t topsGetLastError() {
    return last_error(true);
}

topsError_t topsPeekAtLastError() {
    return last_error(false);
}

const char *topsGetErrorName(topsError_t tops_error) {
    return name_of(tops_error).c_str();
}

const char *topsGetErrorString(topsError_t topsError) {
    // The text is valid until this thread's next call; programs copy the text.
    thread_local std::string words;
    words = words_for(topsError);
    return words.empty() ? name_of(topsError).c_str() : words.c_str();
}

long uhal_sim_live(const char *kind) {
    return Runtime::get().live(kind);
}

void uhal_sim_fail(const char *call, unsigned nth, int code) {
    Runtime::get().instruments.fail(call, nth, code);
}

const char *uhal_sim_message() {
    return sim::Instruments::said().c_str();
}
