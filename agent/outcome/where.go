package outcome

import (
	"regexp"
	"strings"
)

// maxTraceback is how much compact text before an error its traceback may take.
const maxTraceback = 8 << 10

var (
	// loading are frames that only the loading of weights has, and the usual
	// lines that move a whole model to the card.
	loading = regexp.MustCompile(`load_state_dict|from_pretrained|_load_pretrained_model|load_checkpoint|load_model|torch\.load\(|safe_open\(|load_file\(|` +
		`model\.(?:to|cuda|half|float|bfloat16)\(`)
	// starting are calls that a library makes once, when it is first used.
	starting = []string{"cublascreate", "cudnncreate", "cusolverdncreate", "cusparsecreate", "hipblascreate", "cublasltcreate", "miopencreate"}
	// oldBuild says that the library has no code for this card.
	oldBuild = []string{"nokernelimageisavailable", "nobinaryforgpu", "notcompatiblewiththecurrentpytorchinstallation", "devicekernelimageisinvalid"}
)

// whereSentence looks at the traceback that leads to an allocator's sentence.
// Without one nothing is said: a log mentions loading in many other places.
func whereSentence(before string) Where {
	before = before[max(0, len(before)-maxTraceback):]
	_, frames, ok := cutLast(before, "traceback(mostrecentcalllast)")
	if ok && loading.MatchString(frames) {
		return AtLoading
	}
	return ""
}

// whereKind looks at a text in which no number counts.
func whereKind(kind string, f folded) Where {
	switch {
	case kind == KindEnvFault && f.has(oldBuild...):
		return InOldBuild
	case (kind == KindMaybe || kind == KindNoSize) && f.has(starting...):
		return AtFirstUse
	}
	return ""
}

// cutLast cuts a text around the last separator in it.
func cutLast(text, separator string) (before, after string, found bool) {
	i := strings.LastIndex(text, separator)
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i+len(separator):], true
}
