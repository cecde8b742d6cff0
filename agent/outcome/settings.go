package outcome

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/oomfleet/oomfleet/proto"
)

// allocConf is what the cell asks of the allocator. PyTorch takes the first
// name that is set; matrices with both set differently are refused long before.
func (run Run) allocConf() string {
	for _, name := range []string{"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"} {
		if conf, ok := run.Task.Cell.Env[name]; ok {
			return conf
		}
	}
	return ""
}

// options are the options of an allocator's setting. Commas inside brackets
// belong to a value; white space belongs to nothing.
func options(conf string) map[string]string {
	all := map[string]string{}
	depth, start := 0, 0
	conf = strings.Join(strings.Fields(conf), "") + ","
	for i, c := range conf {
		switch {
		case c == '[':
			depth++
		case c == ']':
			depth--
		case c == ',' && depth <= 0:
			if key, value, ok := strings.Cut(conf[start:i], ":"); ok {
				all[key] = value
			}
			start = i + 1
		}
	}
	return all
}

func asks(conf, option, value string) bool {
	return strings.EqualFold(options(conf)[option], value)
}

// ineffective says which setting the cell asked for and did not get, as the
// allocator itself reported its settings, or the empty string. A setting that
// has no effect makes two cells one: such a result must not count as the cell's.
func (run Run) ineffective() string {
	e := run.Evidence
	conf := run.allocConf()
	if conf == "" {
		return ""
	}
	wanted := options(conf)
	if _, native := e.Settings["expandable_segments"]; native && strings.Contains(strings.ToLower(wanted["backend"]), "async") {
		return "setting had no effect: the cell asks for backend:" + wanted["backend"] + ", the run had the native allocator"
	}
	for _, check := range []struct {
		option, setting string
		same            func(want, got string) bool
	}{
		{"expandable_segments", "expandable_segments", strings.EqualFold},
		{"max_split_size_mb", "max_split_size", sameSplitSize},
		{"garbage_collection_threshold", "garbage_collection_threshold", sameNumber},
		{"backend", "backend", strings.EqualFold},
	} {
		want, asked := wanted[check.option]
		got, seen := e.Settings[check.setting]
		if asked && seen && !check.same(want, got) {
			return fmt.Sprintf("setting had no effect: the cell asks for %s:%s, the allocator ran with %s = %s", check.option, want, check.setting, excerpt(got))
		}
	}
	if asks(conf, "expandable_segments", "true") && fold(e.StderrTail).has(softFaults...) {
		return "setting had no effect: expandable_segments is not supported on this platform, as the library warns"
	}
	return ""
}

// sameSplitSize compares mebibytes asked for with bytes in effect. The library
// raises what is under its segment size, and shows no limit as -1.
func sameSplitSize(want, got string) bool {
	asked, err := strconv.ParseInt(want, 10, 64)
	if err != nil {
		return true // what the library made of it cannot be told
	}
	bytes, err := strconv.ParseInt(got, 10, 64)
	if err != nil || asked < 0 {
		return err != nil || bytes < 0
	}
	if bytes < 0 {
		return asked > int64(noSize/proto.MiB)
	}
	return bytes == max(asked<<20, int64(20*proto.MiB))
}

func sameNumber(want, got string) bool {
	a, errA := strconv.ParseFloat(want, 64)
	b, errB := strconv.ParseFloat(got, 64)
	return errA != nil || errB != nil || a-b < 1e-6 && b-a < 1e-6
}
