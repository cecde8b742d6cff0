package raftnode

import (
	"errors"
	"io"
	"log/slog"
	"net"

	"github.com/hashicorp/go-hclog"
)

// newLogger hands raft's log lines to slog. Raft's own errors are the kind that
// it heals (a peer that does not answer), which is our warn; its warnings are
// the course of an election, which is our info; the rest is debug. What a person
// must act on comes back from Open or Propose as an error.
func newLogger(to *slog.Logger) hclog.Logger {
	logger := hclog.NewInterceptLogger(&hclog.LoggerOptions{Output: io.Discard, Level: hclog.Off})
	if to != nil {
		logger.RegisterSink(sink{to: to})
	}
	return logger
}

type sink struct{ to *slog.Logger }

// Accept is called for each line.
func (s sink) Accept(name string, level hclog.Level, msg string, args ...any) {
	for i, arg := range args {
		if err, ok := arg.(error); ok && errors.Is(err, net.ErrClosed) {
			level = hclog.Debug // the node is being closed
		}
		if format, ok := arg.(hclog.Format); ok && len(format) > 0 {
			args[i] = slog.AnyValue(format[1:])
		}
	}
	if name != "" {
		args = append(args, "part", name)
	}
	switch level {
	case hclog.Error:
		s.to.Warn(msg, args...)
	case hclog.Warn:
		s.to.Info(msg, args...)
	default:
		s.to.Debug(msg, args...)
	}
}
