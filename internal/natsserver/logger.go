package natsserver

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
)

// logger turns the server's lines into slog records and its first fatal line
// into an event: nats-server would end the process there, which a library may not.
type logger struct {
	out   *slog.Logger
	once  sync.Once
	fatal chan struct{} // closed at the first fatal line

	mu  sync.Mutex
	why string // guarded by mu
}

func newLogger(out *slog.Logger) *logger {
	if out == nil {
		out = slog.New(slog.DiscardHandler)
	}
	return &logger{out: out.With("component", "nats-server"), fatal: make(chan struct{})}
}

func (l *logger) reason() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.why
}

func (l *logger) line(level slog.Level, format string, v []any) {
	if l.out.Enabled(context.Background(), level) {
		l.out.Log(context.Background(), level, "nats-server says", "line", fmt.Sprintf(format, v...))
	}
}

// Noticef and the rest are nats-server's own logger interface.
func (l *logger) Noticef(format string, v ...any) { l.line(slog.LevelDebug, format, v) }

// Warnf is for what the server healed itself.
func (l *logger) Warnf(format string, v ...any) { l.line(slog.LevelWarn, format, v) }

// Errorf is mostly about clients that went away.
func (l *logger) Errorf(format string, v ...any) { l.line(slog.LevelWarn, format, v) }

// Debugf is dropped unless the caller's logger is at debug.
func (l *logger) Debugf(format string, v ...any) { l.line(slog.LevelDebug, format, v) }

// Tracef is never asked for.
func (l *logger) Tracef(format string, v ...any) {}

// Fatalf ends Run with the line as its error.
func (l *logger) Fatalf(format string, v ...any) {
	l.line(slog.LevelError, format, v)
	l.once.Do(func() {
		l.mu.Lock()
		l.why = fmt.Sprintf(format, v...)
		l.mu.Unlock()
		close(l.fatal)
	})
}
