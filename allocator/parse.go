package allocator

import (
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// The two names under which torch reads the allocator's settings.
const (
	EnvConf    = "PYTORCH_CUDA_ALLOC_CONF"
	EnvConfNew = "PYTORCH_ALLOC_CONF"
)

var (
	// ErrBackend is returned for backend:cudaMallocAsync, which this model
	// does not describe: such a run cannot be replayed.
	ErrBackend = errors.New("backend:cudaMallocAsync is not the caching allocator and cannot be replayed")
	// ErrConflict is returned when both names of the setting are given with
	// different values: versions of torch disagree on which one wins.
	ErrConflict = errors.New(EnvConf + " and " + EnvConfNew + " are set to different values: set one, or both to the same")
)

// UnsupportedEnvError is returned for a variable that is not the allocator's:
// it may change the program itself, so a recording says nothing about it.
type UnsupportedEnvError struct{ Name string }

func (e *UnsupportedEnvError) Error() string {
	return fmt.Sprintf("%s is not a variable of the allocator: it can change the program, so a recording made without it says nothing; only %s and %s can be replayed", e.Name, EnvConf, EnvConfNew)
}

// SettingsFromEnv reads the settings of an environment that holds nothing but
// the allocator's own variables.
func SettingsFromEnv(env map[string]string) (Settings, error) {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if name != EnvConf && name != EnvConfNew {
			return Settings{}, &UnsupportedEnvError{name}
		}
	}
	old, hasOld := env[EnvConf]
	conf, hasNew := env[EnvConfNew]
	if hasOld && hasNew && old != conf {
		return Settings{}, ErrConflict
	}
	if hasOld {
		conf = old
	}
	return ParseSettings(conf)
}

// token is one word of a settings string.
type tokens struct {
	words []string
	at    int
}

// scan splits at , : [ ] and drops white space everywhere, inside words too, as
// torch does.
func scan(conf string) *tokens {
	t := &tokens{}
	word := strings.Builder{}
	flush := func() {
		if word.Len() > 0 {
			t.words = append(t.words, word.String())
			word.Reset()
		}
	}
	for _, r := range conf {
		switch {
		case unicode.IsSpace(r):
		case strings.ContainsRune(",:[]", r):
			flush()
			t.words = append(t.words, string(r))
		default:
			word.WriteRune(r)
		}
	}
	flush()
	return t
}

func (t *tokens) peek() string {
	if t.at < len(t.words) {
		return t.words[t.at]
	}
	return ""
}

func (t *tokens) next() string {
	w := t.peek()
	t.at++
	return w
}

// shown is a key as an error has it: on one line, and not all of a long one.
func shown(key string) string {
	return strings.Trim(fmt.Sprintf("%.80q", key), `"`)
}

// ParseSettings reads a settings string of torch 2.11 ("key:value,key:value").
// An empty string is the defaults. Keys that concern pinned host memory, locks
// or graphs are accepted and change nothing here.
func ParseSettings(conf string) (Settings, error) {
	var s Settings
	if at := strings.Index(conf, "large_segment_size_mb"); at >= 0 {
		// torch reads this key before the others, whose limits depend on it
		t := scan(conf[at:])
		t.at = 2
		if err := s.setSize("large_segment_size_mb", t.peek()); err != nil {
			return Settings{}, err
		}
	}
	for t := scan(conf); t.peek() != ""; {
		key := t.next()
		if strings.ContainsAny(key, ",:[]") {
			return Settings{}, fmt.Errorf("allocator setting %.200q has an empty item: write key:value pairs with single commas between them", conf)
		}
		if sep := t.next(); sep != ":" {
			return Settings{}, fmt.Errorf("allocator setting %.200q: %s needs a value: write %s:VALUE", conf, shown(key), shown(key))
		}
		if err := s.setKey(key, t); err != nil {
			return Settings{}, fmt.Errorf("allocator setting %.200q: %w", conf, err)
		}
		if t.peek() == "," {
			t.next()
		} else if w := t.peek(); w != "" {
			return Settings{}, fmt.Errorf("allocator setting %.200q: unexpected %.80q after %s", conf, w, shown(key))
		}
	}
	return s, nil
}

// Keys lists the settings that torch 2.11 knows, sorted.
func Keys() []string {
	return []string{
		"backend", "expandable_segments", "garbage_collection_threshold", "graph_capture_record_stream_reuse",
		"large_segment_size_mb", "max_non_split_rounding_mb", "max_split_size_mb", "per_process_memory_fraction",
		"pinned_num_register_threads", "pinned_reserve_segment_size_mb", "pinned_use_background_threads",
		"pinned_use_cuda_host_register", "release_lock_on_cudamalloc", "roundup_power2_divisions",
		"throw_on_cudamalloc_oom",
	}
}

func (s *Settings) setKey(key string, t *tokens) error {
	if key == "roundup_power2_divisions" {
		return s.setDivisions(t)
	}
	value := t.next()
	if value == "" || strings.ContainsAny(value, ",:[]") {
		return fmt.Errorf("%s needs a value: write %s:VALUE", shown(key), shown(key))
	}
	switch key {
	case "max_split_size_mb", "max_non_split_rounding_mb", "large_segment_size_mb":
		return s.setSize(key, value)
	case "garbage_collection_threshold", "per_process_memory_fraction":
		return s.setShare(key, value)
	case "expandable_segments":
		return setBool(key, value, &s.Expandable)
	case "backend":
		switch value {
		case "native":
			return nil
		case "cudaMallocAsync":
			return ErrBackend
		}
		return fmt.Errorf("backend is native or cudaMallocAsync, not %.80q", value)
	case "release_lock_on_cudamalloc", "graph_capture_record_stream_reuse", "pinned_use_cuda_host_register",
		"pinned_use_background_threads", "throw_on_cudamalloc_oom":
		return setBool(key, value, new(bool))
	case "pinned_num_register_threads", "pinned_reserve_segment_size_mb":
		_, err := prefixInt(key, value)
		return err
	}
	return fmt.Errorf("unknown key %.80q; known are %s", key, strings.Join(Keys(), ", "))
}

func setBool(key, value string, to *bool) error {
	switch value {
	case "True":
		*to = true
	case "False":
		*to = false
	default:
		return fmt.Errorf("%.80s is True or False, written so, not %.80q", key, value)
	}
	return nil
}

// prefixInt reads the digits at the front, as torch does ("128abc" is 128).
func prefixInt(key, value string) (int64, error) {
	end := 0
	for end < len(value) && (value[end] >= '0' && value[end] <= '9' || end == 0 && value[end] == '-') {
		end++
	}
	n, err := strconv.ParseInt(value[:end], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%.80s needs a whole number, not %.80q", key, value)
	}
	return n, nil
}

// largestSegment bounds large_segment_size. torch takes more, and then refuses
// every request of 1 to 10 MiB; the pools of a sweep, which lay segments out far
// apart, count on this bound (apartBytes).
const largestSegment = 1 << 40

func (s *Settings) setSize(key, value string) error {
	n, err := prefixInt(key, value)
	if err != nil {
		return err
	}
	if n < 0 || n > 1<<40 { // wraps to a huge unsigned number: unlimited
		if key == "max_split_size_mb" {
			s.MaxSplit = 0
			return nil
		}
		return fmt.Errorf("%s of %.80s MiB is out of range", key, value)
	}
	least := s.largeSegment() >> 20
	switch key {
	case "large_segment_size_mb":
		if n <= 10 {
			return fmt.Errorf("large_segment_size_mb must be more than 10, not %d", n)
		}
		if n > largestSegment>>20 {
			return fmt.Errorf("large_segment_size_mb of %d is more than any card has: at most %d", n, largestSegment>>20)
		}
		s.LargeSegment = n << 20
	case "max_split_size_mb":
		if n < least {
			return fmt.Errorf("max_split_size_mb must be at least %d, not %d", least, n)
		}
		s.MaxSplit = n << 20
	case "max_non_split_rounding_mb":
		if n < least {
			return fmt.Errorf("max_non_split_rounding_mb must be at least %d, not %d", least, n)
		}
		s.MaxNonSplit = n << 20
	}
	return nil
}

func (s *Settings) setShare(key, value string) error {
	f, err := strconv.ParseFloat(value, 64)
	if err != nil || f != f {
		return fmt.Errorf("%.80s needs a number, not %.80q", key, value)
	}
	if key == "garbage_collection_threshold" {
		if f <= 0 || f >= 1 {
			return fmt.Errorf("garbage_collection_threshold lies between 0 and 1, both excluded, not %.80s", value)
		}
		s.GCThreshold = f
		return nil
	}
	if f < 0 || f > 1 {
		return fmt.Errorf("per_process_memory_fraction lies between 0 and 1, not %.80s", value)
	}
	s.Fraction, s.ZeroFraction = f, f == 0
	return nil
}

// setDivisions reads one power of two for all sizes, or a list of size:value
// pairs in MiB, of which the first holds for everything below too and ">" for
// everything above the last.
func (s *Settings) setDivisions(t *tokens) error {
	if t.peek() != "[" {
		v, err := powerOfTwo(t.next())
		if err != nil {
			return err
		}
		for i := range s.Divisions {
			s.Divisions[i] = v
		}
		return nil
	}
	t.next()
	last := -1
	for first := true; ; first = false {
		size := t.next()
		if size == "]" && !first {
			return nil
		}
		if t.next() != ":" {
			return fmt.Errorf("roundup_power2_divisions takes a power of two or a list like [256:1,512:2,>:4]")
		}
		v, err := powerOfTwo(t.next())
		if err != nil {
			return err
		}
		if size == ">" {
			for i := last + 1; i < len(s.Divisions); i++ {
				s.Divisions[i] = v
			}
		} else {
			n, err := strconv.ParseUint(size, 10, 32)
			if err != nil || n == 0 || n&(n-1) != 0 {
				return fmt.Errorf("roundup_power2_divisions: %.80q is not a power of two in MiB", size)
			}
			last = min(bits.Len64(n)-1, len(s.Divisions)-1)
			s.Divisions[last] = v
			for i := 0; first && i < last; i++ {
				s.Divisions[i] = v
			}
		}
		switch t.peek() {
		case ",":
			t.next()
		case "]":
			t.next()
			return nil
		default:
			return fmt.Errorf("roundup_power2_divisions: the list has no closing bracket")
		}
	}
}

// mostDivisions leave nothing to divide: that would take a request of more than 512 GiB.
const mostDivisions = 1 << 30

func powerOfTwo(text string) (int64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) || err == nil && n&(n-1) != 0 {
		return 0, fmt.Errorf("roundup_power2_divisions: %.80q is not a power of two", text)
	}
	if err != nil || n > mostDivisions {
		return 0, fmt.Errorf("roundup_power2_divisions: %.80s is too many: only sizes above 512 bytes times the number are divided; at most %d", text, mostDivisions)
	}
	return int64(n), nil
}
