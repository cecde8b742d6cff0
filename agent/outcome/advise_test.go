package outcome

import (
	"regexp"
	"strings"
	"testing"
)

var kinds = []string{KindOOM, KindAtCap, KindOtherTenant, KindFreeExceedsTried, KindUnaccounted, KindHostSpill, KindTruncated, KindNoSize, KindAsyncBackend,
	KindNCCL, KindXLA, KindTF, KindMaybe, KindHostOOM, KindHostOOMKill, KindBogus, KindEnvFault, KindNotOOM}

// TestAdvise holds that advice is one to three sentences for every kind, with
// all numbers and with none.
func TestAdvise(t *testing.T) {
	sentenceEnd := regexp.MustCompile(`[.?!](?: [A-Z]|$)`)
	check := func(t *testing.T, r Reading) {
		t.Helper()
		text := Advise(r)
		if n := len(sentenceEnd.FindAllString(text, -1)); n < 1 || n > 3 {
			t.Errorf("%s: %d sentences: %s", show(r), n, text)
		}
		if strings.Contains(text, "  ") || strings.Contains(text, "..") || strings.Contains(text, "nil") {
			t.Errorf("%s: %s", show(r), text)
		}
	}
	for _, kind := range kinds {
		check(t, Reading{Kind: kind})
	}
	for _, s := range samples(t) {
		check(t, s.reading())
	}
}

func TestAdviseUsesTheNumbers(t *testing.T) {
	byID := map[string]sample{}
	for _, s := range samples(t) {
		byID[s.ID] = s
	}
	for id, parts := range map[string][]string{
		"M26": {"cap of 17.69 GiB", "not by the card", "9.06 GiB free"},
		"M84": {"cap of 9.00 GiB", "130.23 GiB free", "8.64 GiB"},
		"M35": {"2.00 MiB was asked for", "203.49 GiB of 287.98 GiB was free", "do not explain"},
		"M20": {"736.86 MiB", "expandable_segments:True alone"},
		"M17": {"larger than the card"},
		"M85": {"Other processes", "301.56 MiB of 139.80 GiB"},
	} {
		text := Advise(Read(byID[id].Text))
		for _, part := range parts {
			if !strings.Contains(text, part) {
				t.Errorf("%s: no %q in %q", id, part, text)
			}
		}
	}
}

// symptomCases are the rows of a table of symptoms that an article lists, as far
// as the text of an error can show them, with what the advice must say.
var symptomCases = []struct {
	name, text, kind string
	says             []string
}{
	{"refused with much free, the article's own", "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 128.00 MiB (GPU 0; 31.86 GiB total capacity; 16.45 GiB already allocated; 14.95 GiB free; 16.95 GiB reserved in total by PyTorch)",
		KindFreeExceedsTried, []string{"14.95 GiB of 31.86 GiB was free", "quota", "held 16.95 GiB and would have come to 17.08 GiB", "not too small", "add up to 31.90 GiB, more than the card"}},
	{"refused with much free, cap named", g + "Tried to allocate 128.00 MiB. GPU 0 has a total capacity of 31.86 GiB of which 14.00 GiB is free. Including non-PyTorch memory, this process has 17.50 GiB memory in use. 17.00 GiB allowed; Of the allocated memory 15.45 GiB is allocated by PyTorch, and 1.50 GiB is reserved by PyTorch but unallocated.",
		KindAtCap, []string{"cap of 17.00 GiB", "14.00 GiB free", "1.50 GiB lie reserved but unused", "expandable_segments:True alone"}},
	{"tensors small, process large: the cache", g + "Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.69 GiB of which 300.00 MiB is free. Including non-PyTorch memory, this process has 23.30 GiB memory in use. Of the allocated memory 9.00 GiB is allocated by PyTorch, and 13.80 GiB is reserved by PyTorch but unallocated.",
		KindOOM, []string{"13.80 GiB of PyTorch's lie reserved but unused", "expandable_segments:True alone", "never together with max_split_size_mb"}},
	{"tensors small, process large: not the cache", g + "Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.69 GiB of which 300.00 MiB is free. Including non-PyTorch memory, this process has 23.30 GiB memory in use. Of the allocated memory 9.00 GiB is allocated by PyTorch, and 500.00 MiB is reserved by PyTorch but unallocated.",
		KindOOM, []string{"tensors use 9.00 GiB", "13.81 GiB more of this process lie outside PyTorch's cache"}},
	{"peak while loading", "Traceback (most recent call last):\n  File \"run.py\", line 3, in <module>\n    model = EsmForProteinFolding.from_pretrained(name).cuda()\n  File \"module.py\", line 905, in cuda\n    return self._apply(lambda t: t.cuda(device))\ntorch.OutOfMemoryError: " + g + "Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 15.78 GiB of which 10.00 MiB is free. Of the allocated memory 15.00 GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated.",
		KindOOM, []string{"while the model was loading", "that peak", "memory-mapped"}},
	{"first call fails, second passes", "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
		KindMaybe, []string{"first call", "second try may pass", "warm-up"}},
	{"newer card", "RuntimeError: CUDA error: no kernel image is available for execution on the device",
		KindEnvFault, []string{"no code for this card", "CUDA 12.8", "no quota carries over"}},
	{"several jobs on a card", g + "Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 24.00 GiB of which 200.00 MiB is free. Process 11 has 12.00 GiB memory in use. Including non-PyTorch memory, this process has 11.50 GiB memory in use. Of the allocated memory 10.00 GiB is allocated by PyTorch, and 800.00 MiB is reserved by PyTorch but unallocated.",
		KindOtherTenant, []string{"Other processes hold the card", "peak reserved memory and a context", "not the size of their weights"}},
}

func TestAdviseOnSymptoms(t *testing.T) {
	for _, c := range symptomCases {
		t.Run(c.name, func(t *testing.T) {
			r := Read(c.text)
			text := Advise(r)
			if r.Kind != c.kind {
				t.Errorf("kind %s, want %s", r.Kind, c.kind)
			}
			for _, part := range c.says {
				if !strings.Contains(text, part) {
					t.Errorf("no %q in %q", part, text)
				}
			}
		})
	}
}

// TestWhereNeedsATraceback: a log that merely mentions loading says nothing about
// where an allocation failed, nor does an older traceback.
func TestWhereNeedsATraceback(t *testing.T) {
	for _, text := range []string{
		"model = AutoModel.from_pretrained(name)\n" + sentenceOf(2),
		"Traceback (most recent call last):\n  File \"a.py\", line 1, in load_state_dict\nKeyError: 'x'\nTraceback (most recent call last):\n  File \"b.py\", line 1, in forward\n" + sentenceOf(2),
	} {
		if r := Read(text); r.Where != "" || r.Kind != KindOOM {
			t.Errorf("%q: %+v", text, r)
		}
	}
}
