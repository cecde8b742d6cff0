package allocator

import (
	"errors"
	"strings"
	"testing"
)

func all(v int64) (d [16]int64) {
	for i := range d {
		d[i] = v
	}
	return d
}

// TestParseSettings: what torch 2.11 accepts, with the meaning it gives it.
func TestParseSettings(t *testing.T) {
	const MiB = 1 << 20
	for _, c := range []struct {
		conf string
		want Settings
	}{
		{"", Settings{}},
		{" ", Settings{}},
		{"backend:native", Settings{}},
		{"expandable_segments:True", Settings{Expandable: true}},
		{"expandable_segments:True,expandable_segments:False", Settings{}},
		{"expandable_segments:True,", Settings{Expandable: true}}, // a trailing comma is accepted
		{"expandable _segments : Tr ue", Settings{Expandable: true}},
		{"max_split_size_mb:128", Settings{MaxSplit: 128 * MiB}},
		{"max_split_size_mb:128abc", Settings{MaxSplit: 128 * MiB}},
		{"max_split_size_mb:20", Settings{MaxSplit: 20 * MiB}},
		{"max_split_size_mb:-1", Settings{}}, // wraps to unlimited
		{"max_split_size_mb:128,max_split_size_mb:-1", Settings{}},
		{"max_split_size_mb:15,large_segment_size_mb:12", Settings{MaxSplit: 15 * MiB, LargeSegment: 12 * MiB}},
		{"max_non_split_rounding_mb:64", Settings{MaxNonSplit: 64 * MiB}},
		{"garbage_collection_threshold:0.8", Settings{GCThreshold: 0.8}},
		{"per_process_memory_fraction:0.5", Settings{Fraction: 0.5}},
		{"per_process_memory_fraction:0", Settings{ZeroFraction: true}},
		{"roundup_power2_divisions:4", Settings{Divisions: all(4)}},
		{"roundup_power2_divisions:[256:1,512:2,1024:4,>:8]", Settings{Divisions: [16]int64{1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8}}},
		{"roundup_power2_divisions:[64:8,256:4],expandable_segments:True", Settings{Expandable: true, Divisions: [16]int64{8, 8, 8, 8, 8, 8, 8, 0, 4}}},
		{"roundup_power2_divisions:[1:8,]", Settings{Divisions: [16]int64{8}}},
		{"pinned_use_cuda_host_register:True,pinned_num_register_threads:8", Settings{}},
		{"release_lock_on_cudamalloc:True,graph_capture_record_stream_reuse:False", Settings{}},
	} {
		got, err := ParseSettings(c.conf)
		if err != nil || got != c.want {
			t.Errorf("%q: %+v, %v; want %+v", c.conf, got, err, c.want)
		}
	}
}

// TestParseSettingsRefuses: what torch refuses, or would read as something else
// than was meant; the message names the item.
func TestParseSettingsRefuses(t *testing.T) {
	for conf, want := range map[string]string{
		"expandable_segments:true":                      "True or False",
		"expandable_segments=True":                      "needs a value",
		"expandable_segments":                           "needs a value",
		"expandable_segments:":                          "needs a value",
		"max_split_size_mb:128,,backend:native":         "empty item",
		",":                                             "empty item",
		"max_split_size_mb:10":                          "at least 20",
		"max_split_size_mb:x":                           "whole number",
		"max_split_size_mb:29,large_segment_size_mb:30": "at least 30",
		"max_non_split_rounding_mb:19":                  "at least 20",
		"max_non_split_rounding_mb:-1":                  "out of range",
		"large_segment_size_mb:10":                      "more than 10",
		"large_segment_size_mb":                         "whole number",
		"garbage_collection_threshold:1":                "between 0 and 1",
		"garbage_collection_threshold:0":                "between 0 and 1",
		"garbage_collection_threshold:NaN":              "needs a number",
		"per_process_memory_fraction:1.5":               "between 0 and 1",
		"roundup_power2_divisions:3":                    "power of two",
		"roundup_power2_divisions:1099511627776":        "too many",
		"roundup_power2_divisions:18446744073709551616": "too many",
		"roundup_power2_divisions:[256:1099511627776]":  "too many",
		"large_segment_size_mb:1048577":                 "more than any card",
		"roundup_power2_divisions:":                     "power of two",
		"roundup_power2_divisions:[]":                   "takes a power of two",
		"roundup_power2_divisions:[256:1":               "closing bracket",
		"roundup_power2_divisions:[3:1]":                "power of two in MiB",
		"roundup_power2_divisions:[256]":                "takes a power of two",
		"backend:cuda":                                  "native or cudaMallocAsync",
		"max_split_size:128":                            "unknown key",
		"a:1,,b:2":                                      "unknown key",
		"backend:native expandable_segments:True":       "backend is native",
		"backend:native[":                               "unexpected",
		"pinned_num_register_threads:many":              "whole number",
	} {
		if _, err := ParseSettings(conf); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q in it", conf, err, want)
		}
	}
	if _, err := ParseSettings("backend:cudaMallocAsync"); !errors.Is(err, ErrBackend) {
		t.Errorf("cudaMallocAsync: %v", err)
	}
}

// TestSettingsFromEnv: two names of one variable; versions of torch disagree on
// which one wins, so they must agree.
func TestSettingsFromEnv(t *testing.T) {
	const x = "expandable_segments:True"
	on := Settings{Expandable: true}
	for _, c := range []struct {
		env  map[string]string
		want Settings
		err  error
	}{
		{nil, Settings{}, nil},
		{map[string]string{EnvConf: x}, on, nil},
		{map[string]string{EnvConfNew: x}, on, nil},
		{map[string]string{EnvConf: x, EnvConfNew: x}, on, nil},
		{map[string]string{EnvConf: x, EnvConfNew: ""}, Settings{}, ErrConflict},
		{map[string]string{EnvConf: "backend:cudaMallocAsync"}, Settings{}, ErrBackend},
	} {
		got, err := SettingsFromEnv(c.env)
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%v: %+v, %v", c.env, got, err)
		}
	}
	_, err := SettingsFromEnv(map[string]string{EnvConf: x, "CUBLAS_WORKSPACE_CONFIG": ":16:8"})
	var other *UnsupportedEnvError
	if !errors.As(err, &other) || other.Name != "CUBLAS_WORKSPACE_CONFIG" {
		t.Errorf("a variable that is not the allocator's: %v", err)
	}
}

// FuzzParseSettings: no text makes the reader panic or hang, and what it
// accepts lies in range.
func FuzzParseSettings(f *testing.F) {
	for _, s := range []string{"a:1,,b:2", "roundup_power2_divisions:[256:1,>:8]", "max_split_size_mb:128,backend:native", "large_segment_size_mb:12:"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, conf string) {
		s, err := ParseSettings(conf)
		if err != nil && (len(err.Error()) > 4000 || strings.ContainsAny(err.Error(), "\n\r")) {
			t.Errorf("an error of %d bytes: %.300q", len(err.Error()), err)
		}
		if err == nil && (s.MaxSplit < 0 || s.GCThreshold < 0 || s.GCThreshold >= 1 || s.MaxSplit > 0 && s.MaxSplit < 10<<20) {
			t.Errorf("%q: %+v", conf, s)
		}
	})
}
