package s3server

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"
)

func TestWhileTaken(t *testing.T) {
	other := errors.New("another trouble")
	taken := fmt.Errorf("listen: %w", syscall.EADDRINUSE)
	for name, tc := range map[string]struct {
		answers []error // the last one repeats
		want    error
		calls   int
	}{
		"free":         {[]error{nil}, nil, 1},
		"taken twice":  {[]error{taken, taken, nil}, nil, 3},
		"then broken":  {[]error{taken, other}, other, 2},
		"always taken": {[]error{taken}, syscall.EADDRINUSE, portTries},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			err := whileTaken(t.Context(), func() error {
				answer := tc.answers[min(calls, len(tc.answers)-1)]
				calls++
				return answer
			})
			if !errors.Is(err, tc.want) || calls != tc.calls {
				t.Errorf("%d calls, %v", calls, err)
			}
		})
	}
}

func TestChoose(t *testing.T) {
	for _, addr := range []string{"", "127.0.0.1:0"} {
		got, err := choose(addr)
		if err != nil {
			t.Fatal(err)
		}
		host, port, err := net.SplitHostPort(got)
		if err != nil || host != "127.0.0.1" || port == "0" {
			t.Errorf("%q becomes %q", addr, got)
		}
	}
	if got, err := choose("10.1.2.3:4000"); err != nil || got != "10.1.2.3:4000" {
		t.Errorf("%q, %v", got, err)
	}
}
