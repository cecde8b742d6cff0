package outcome

import "regexp"

// The words below are sought in compact text: lower case, no white space.

// hardFaults say that the machine, its driver or a setting is broken; the cell
// is not to blame and no run on this agent can succeed.
var hardFaults = []string{
	// The card is gone or damaged.
	"fallenoffthebus", "gpuislost", "gpurequiresreset", "uncorrectableecc", "uncorrectablenvlink",
	"ecc_uncorrectable", "eccuncorrectable",
	// The driver does not answer, or is not the one that is loaded.
	"driver/libraryversionmismatch", "couldn'tcommunicatewiththenvidiadriver", "failedtoinitializenvml",
	"nodeviceswerefound", "nocuda-capabledevice", "cuda_error_no_device", "cudaerrornodevice", "nohipgpusareavailable", "nocudagpusareavailable",
	"foundnonvidiadriver", "driveronyoursystemistooold", "driverversionisinsufficient", "unsupporteddisplaydriver",
	"system_driver_mismatch", "systemdrivermismatch", "forwardcompatibilitywasattempted", "systemnotyetinitialized",
	"systemnotready", "blockedbytheoperatingsystem", "libcuda.so.1:cannotopen", "libcuda.socannot", "loaddynamiclibrary'libcuda",
	"torchnotcompiledwithcudaenabled", "incorrectlysetupenvironment", "unexpectederrorfromcudagetdevicecount",
	"invaliddeviceordinal", "driverisshuttingdown", "drivershuttingdown",
	"doesnotmatchdsoversion", "rminitadapterfailed", "failedcalltocuinit", "cuda_error_unknown", "cudaerrorinitializationerror",
	"nvidia-container-cli", "couldnotselectdevicedriver", "unabletodeterminethedevicehandle",
	// Another user or mode of the card.
	"busyorunavailable", "devicesunavailable", "devicenotready", "mpsclient", "mpsserver", "mpscontrol",
	// The library was not built for this card.
	"nokernelimageisavailable", "nobinaryforgpu", "invaliddevicefunction", "devicekernelimageisinvalid",
	"unsupportedtoolchain", "notcompatiblewiththecurrentpytorchinstallation",
	// The platform refuses.
	"cudadrivererror:", "cudaerror:unknownerror", "cudaerror:operationnotsupported", "cudaerror:initializationerror",
	"hiperror:unknownerror",
}

// xid is a report of the driver's; some of its numbers are a program's own doing.
var xid = regexp.MustCompile(`xid\([^)]{0,40}\):([0-9]+)`)

func xidFault(f folded) bool {
	if !f.has("xid(") {
		return false
	}
	for _, m := range xid.FindAllStringSubmatch(f.compact, 64) {
		switch m[1] {
		case "13", "31", "43", "45": // exception, page fault, reset and stop of one program's channel
		default:
			return true
		}
	}
	return false
}

func hardFault(f folded) bool { return f.has(hardFaults...) || xidFault(f) }

// badOptions say that an option of the environment was rejected.
var badOptions = []string{
	"cachingallocatoroption", "errorparsingcachingallocator", "incudaallocatorconfig", "inacceleratorallocatorconfig",
	"unrecognizedallocatoroption", "expectedasingletrue/false", "garbage_collect_thresholdtoo", "garbage_collection_thresholdtoo",
}

// softFaults are warnings that matter only where nothing worse is said.
var softFaults = []string{"expandable_segmentsnotsupported", "expandable_segmentsisnotsupported"}

// maybeWords are errors of libraries that may hide an out-of-memory.
var maybeWords = []string{
	"cublas_status_alloc_failed", "cublas_status_not_initialized", "cublas_status_internal_error",
	"hipblas_status_alloc_failed", "hipblas_status_not_initialized", "hipblas_status_internal_error",
	"rocblas_status_memory_error", "miopenstatusallocfailed", "miopenstatusinternalerror", "miopenstatusunknownerror",
	"cudnn_status_internal_error", "cudnn_status_not_supported", "cudnn_status_alloc_failed", "cudnn_status_not_initialized",
	"cudnn_status_execution_failed", "validcudnnalgorithm", "convolutionalgorithm.thisisprobablybecausecudnn",
	"unabletofindanenginetoexecutethiscomputation", "cudnnfrontenderror", "novalidexecutionplans", "noexecutionplans",
	"cusolver_status_alloc_failed", "cusolver_status_not_initialized", "cusolver_status_internal_error",
	"cusparse_status_alloc_failed", "cusparse_status_insufficient_resources", "cusparse_status_not_initialized",
	"cufft_alloc_failed", "cufft_internal_error",
	"nvml_success==rinternalassertfailed",
}

// maybeAssert is the allocator's own assertion, at whatever line.
var maybeAssert = regexp.MustCompile(`internalassertfailedat.{0,200}(?:cuda|hip)cachingallocator`)

// noSizeWords are out-of-memory by their own name, without sizes.
var noSizeWords = []string{
	"cuda_error_out_of_memory", "cudaerrormemoryallocation", "hiperroroutofmemory", "hiperrormemoryallocation",
	"outofdevicememory", "out_of_device_memory", "cl_mem_object_allocation_failure", "out_of_memory:cudaerror",
	"bad_alloc:cudaerror", "maximumpoolsizeexceeded",
}

var (
	// deviceWord is what must stand shortly before "out of memory" for it to be
	// the device's; deviceError may stand further off (a path between them).
	deviceWord = regexp.MustCompile(`cuda|cu[a-z]{3,12}failed|hip(?:error|malloc|runtime|driver|[^a-z]|$)|triton|gpu|nvidia|accelerator|vulkan|opencl|mpsbackend|` +
		`device|(?:xpu|npu|mlu|gcu|musa|runtimeerror:|error:)$`)
	deviceError = regexp.MustCompile(`cuda(?:runtime|driver|api)?(?:error|failure)|hiperror|tritonerror`)
	// hedge ends the text before a mention that is advice, not an event.
	hedge = regexp.MustCompile(`(?:avoid|avoids|avoiding|prevent|prevents|preventing|against|reduce|might|may|could|can|would|cancause|incaseof|ifyou(?:get|see|hit|have|encounter|runinto|runoutof)|riskof|except|toresolve|tofix|fixes|solve)(?:the|a|an|any|possible|potential|cause|causes|result|in|be|run|running|leadto|throw|raise|hit)*(?:torch\.)?(?:cuda\.?|gpu|hip)?$`)
)

// killWords say that the host's kernel or a workload manager ended a process
// for its memory.
var killWords = []string{
	"oom_killevent", "oom-killevent", "oom-kill:", "'oom-kill'", "oom-killer", "oomkiller", "oomkilled", "outofmemory:kill", "outofmemory(oom)",
	"memorycgroupoutofmemory", "runninglowonmemory", "killedbysignal:killed", "killedbysignal9", "terminatedbysignal9",
	"signal9(sigkill)", "signals.sigkill", "signal:9", "status=9/kill", "signal:killed", "exceededmemorylimit", "exceededjobmemorylimit",
}

var (
	killCode = regexp.MustCompile(`(?:exit|return|terminat)(?:ed|s)?(?:with)?(?:code|status|value)*["']?[:=("']*(?:137|247|-9)(?:[^0-9]|$)`)
	// killLine is the shell's own word for it: "Killed", "line 3: 77 Killed  python".
	killLine = regexp.MustCompile(`^(?:(?:.*[:\s])?[0-9]+ +)?(?:\[[0-9]+\]\S* +)?Killed(?:: 9)?(?:\s{2,}.*)?$`)
)

// hostWords say that the host's memory was refused.
var hostWords = []string{
	"defaultcpuallocator", "notenoughmemory:youtried", "cannotallocatememory", "arraymemoryerror", "java.lang.outofmemoryerror",
	"std::bad_alloc", "badallocation", "pagingfileistoosmall", "cudamallochostfailed", "onhost:cuda_error_out_of_memory",
}

var (
	hostTried   = regexp.MustCompile(`(?:youtriedtoallocate|failedtoalloc(?:ate)?|unabletoallocate)` + sizeText)
	memoryError = regexp.MustCompile(`(?:^|[^a-z_.])memoryerror(?::|$)`)
)
