package trace

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/oomfleet/oomfleet/proto"
)

const (
	tracePrefix    = "traces/"
	traceSuffix    = ".parquet"
	evidencePrefix = "evidence/"
	evidenceSuffix = ".json"
	programPrefix  = "programs/"
	programSuffix  = ".json"
	canaryPrefix   = "canary/"
)

// ValidKey reports whether key is one that every store takes as it is:
// [a-z0-9._/-], relative, without empty or dotted steps, at most 200 bytes.
// Names built from axis values would need escaping, which stores do
// differently; keys here come from hashes.
func ValidKey(key string) bool {
	if key == "" || len(key) > 200 {
		return false
	}
	for i := range len(key) {
		c := key[i]
		if !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-' || c == '/') {
			return false
		}
	}
	for step := range strings.SplitSeq(key, "/") {
		if step == "" || step[0] == '.' {
			return false
		}
	}
	return true
}

// DigestOf is the digest of an object with this content.
func DigestOf(content []byte) proto.Digest {
	sum := sha256.Sum256(content)
	return proto.Digest(hex.EncodeToString(sum[:]))
}

// ValidDigest reports whether d is 64 lower-case hexadecimal digits.
func ValidDigest(d proto.Digest) bool {
	return len(d) == 64 && strings.Trim(string(d), "0123456789abcdef") == ""
}

func traceKey(d proto.Digest) string    { return tracePrefix + string(d) + traceSuffix }
func evidenceKey(d proto.Digest) string { return evidencePrefix + string(d) + evidenceSuffix }
func programKey(d proto.Digest) string  { return programPrefix + string(d) + programSuffix }

// digestOfKey takes a trace's digest out of its key; false for foreign objects.
func digestOfKey(key string) (proto.Digest, bool) {
	name, ok := strings.CutPrefix(key, tracePrefix)
	if !ok {
		return "", false
	}
	name, ok = strings.CutSuffix(name, traceSuffix)
	return proto.Digest(name), ok && ValidDigest(proto.Digest(name))
}
