package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// TestServeLetsRequestsFinish: a server that is asked to stop is there until what
// it was asked before is answered.
func TestServeLetsRequestsFinish(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ending, answer := make(chan struct{}), make(chan struct{})
	served := make(chan error, 1)
	go func() {
		served <- serveHTTP(ctx, listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			stop()
			<-r.Context().Done()
			close(ending)
			<-answer
			io.WriteString(w, "whole")
		}))
	}()
	said := make(chan string, 1)
	go func() {
		defer close(said)
		response, err := http.Get("http://" + listener.Addr().String())
		if err != nil {
			t.Error(err)
			return
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Error(err)
		}
		said <- string(text)
	}()
	<-ending
	select {
	case err := <-served:
		t.Errorf("it has ended beside a request: %v", err)
	case <-time.After(100 * time.Millisecond): // it would end at once
	}
	close(answer)
	if got := <-said; got != "whole" {
		t.Errorf("answered %q", got)
	}
	if t.Failed() {
		return
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}
