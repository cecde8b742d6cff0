package child

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// TestCheck: one sentence says why a card fails, and the next run is well where
// the runner is.
func TestCheck(t *testing.T) {
	const advice = "; look at nvidia-smi -q and dmesg, and reset the card or take it out"
	for how, want := range map[string]string{
		"hello":          "",
		"check-pass":     "",
		"check-ecc":      "AcceleratorError: CUDA error: uncorrectable ECC error encountered" + advice,
		"check-infinite": "its numbers are not finite" + advice,
		"check-crash":    "it ends by signal killed, in phase load" + advice,
		"check-mute":     "it ends without a word, in phase load" + advice,
		"check-hang":     "it comes to no end, in phase ", // how far it came in a second is the machine's
		"check-die":      "ended in the middle of a run",
		"check-garbage":  "broke the protocol",
	} {
		t.Run(how, func(t *testing.T) {
			p := newTestProber(t, how, func(cfg *Config) {
				if how == "check-hang" {
					cfg.Timing.Check = time.Second
				}
			})
			err := p.Check(t.Context())
			if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n")) {
				t.Errorf("got %v, want %q", err, want)
			}
			if o, err := p.Run(t.Context(), taskOf("pass")); err != nil || o.Evidence.ExitCode == nil || *o.Evidence.ExitCode != 0 {
				t.Errorf("the next run: %+v, %v", o.Evidence, err)
			}
		})
	}
}

// TestCheckCancelled: the check is killed, and its error is the cause.
func TestCheckCancelled(t *testing.T) {
	p := newTestProber(t, "check-hang", nil)
	stop := errors.New("stopped by the test")
	ctx, cancel := context.WithCancelCause(t.Context())
	timer := time.AfterFunc(100*time.Millisecond, func() { cancel(stop) }) // whenever: it never ends by itself
	defer timer.Stop()
	if err := p.Check(ctx); !errors.Is(err, stop) {
		t.Errorf("got %v, want the cause", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if err := p.Check(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("after close: %v", err)
	}
}
