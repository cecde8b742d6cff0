package sim

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/oomfleet/oomfleet/agent/runner"
	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/proto"
)

// effect is what a variable outside the allocator was seen to do. The recorded
// runs (testdata/esmfold_h200_runs.jsonl) show for each of these that the
// allocator's numbers do not move.
type effect struct {
	name, value string
	// everywhere is true where the effect does not depend on the shape (it was
	// recorded at two lengths and was the same); otherwise it is known for
	// L256 B1 without chunking only.
	everywhere bool
	// context and outside are what the context, and all bytes outside the
	// allocator at the peak, take more.
	context, outside proto.Bytes
	seconds          float64
}

func effects() []effect {
	return []effect{
		{name: "CUDA_MODULE_LOADING", value: "LAZY", everywhere: true}, // torch's own default
		// Outside at L256 and L384: 1,863,122,944 bytes; context 1,319,960,576
		// and 1,322,057,728, of which the smaller is taken.
		{name: "CUDA_MODULE_LOADING", value: "EAGER", everywhere: true,
			context: 1_319_960_576 - 648_871_936, outside: 1_863_122_944 - 722_272_256, seconds: 2.4},
		{name: "NVIDIA_TF32_OVERRIDE", value: "0"},
		{name: "CUBLAS_WORKSPACE_CONFIG", value: ":4096:8", outside: -32 * proto.MiB},
	}
}

// environment is a run's environment, understood.
type environment struct {
	conf     string // the allocator's settings as text
	settings allocator.Settings
	effect   effect // the sum of all effects
}

// rejection is why a run ends before it begins. bad says that the cell itself
// is wrong; otherwise only this simulator cannot answer it.
type rejection struct {
	exception string
	message   string
	bad       bool
}

func unsupported(format string, args ...any) *rejection {
	return &rejection{exception: "Unsupported", message: fmt.Sprintf(format, args...)}
}

// understand reads the environment of a request.
func understand(req runner.Request) (environment, *rejection) {
	var e environment
	conf := map[string]string{}
	plain := req.SeqLen == 256 && req.Batch == 1 && req.ChunkSize == 0
	for _, name := range slices.Sorted(maps.Keys(req.Env)) {
		value := req.Env[name]
		if name == allocator.EnvConf || name == allocator.EnvConfNew {
			conf[name], e.conf = value, value
			continue
		}
		known := effects()
		i := slices.IndexFunc(known, func(k effect) bool { return k.name == name && k.value == value && (k.everywhere || plain) })
		if i < 0 {
			return e, unsupported("the effect of %s=%s was not recorded for %s: a simulated agent runs the allocator's own variables, and %s",
				name, value, strings.ReplaceAll(traceName(req.SeqLen, req.Batch, req.ChunkSize), "_", " "), knownEffects())
		}
		e.effect.context += known[i].context
		e.effect.outside += known[i].outside
		e.effect.seconds += known[i].seconds
	}
	settings, err := allocator.SettingsFromEnv(conf)
	switch {
	case errors.Is(err, allocator.ErrBackend):
		return e, unsupported("%v", err)
	case err != nil:
		return e, &rejection{exception: "ValueError", message: err.Error(), bad: true}
	}
	e.settings = settings
	return e, nil
}

func knownEffects() string {
	var known []string
	for _, k := range effects() {
		where := " for L256 B1 only"
		if k.everywhere {
			where = ""
		}
		known = append(known, k.name+"="+k.value+where)
	}
	return strings.Join(known, ", ")
}
