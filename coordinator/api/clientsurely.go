package api

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"time"
)

const (
	// firstAgain is how soon a request whose answer was lost is sent again; each
	// time after that comes twice as late.
	firstAgain = 200 * time.Millisecond
	// mostTries and againWithin bound that; another leader is there within a second
	// or two, and what is silent costs seconds each time.
	mostTries   = 6
	againWithin = 10 * time.Second
)

// headerKey is the header that makes all requests with one key one request.
const headerKey = "Idempotency-Key"

// askOnce posts in under a key, which is made up here unless it is given: however
// often it is sent, it counts once.
func askOnce[T any](ctx context.Context, c *Client, key, path string, in any) (T, error) {
	r := request{method: http.MethodPost, path: path, key: cmp.Or(key, rand.Text())}
	return surely(ctx, func() (T, error) { return exchange[T](ctx, c, r, in) })
}

// surely asks again while nobody knows whether the request has counted, and then
// also while no leader is there to tell. The request carries a key, so that all of
// them are one. A request that was refused, or never arrived, is not asked again.
func surely[T any](ctx context.Context, ask func() (T, error)) (out T, err error) {
	began := time.Now()
	for try, lost := 1, false; ; try++ {
		out, err = ask()
		lost = lost || answerLost(err)
		if err == nil || !lost || !passing(err) || try == mostTries || time.Since(began) > againWithin {
			return out, err
		}
		wait := time.NewTimer(firstAgain << (try - 1))
		select {
		case <-ctx.Done():
			wait.Stop()
			return out, err
		case <-wait.C:
		}
	}
}

// answerLost reports whether a request may have counted all the same: of one of
// the coordinators that were asked nobody knows what it did.
func answerLost(err error) bool {
	return slices.ContainsFunc(each(err), func(one error) bool {
		var p *Problem
		var none *unreachedError
		switch {
		case errors.As(one, &p): // a gateway in between does not know either
			return p.Code == CodeUncertain || p.status == http.StatusBadGateway || p.status == http.StatusGatewayTimeout
		case errors.As(one, &none):
			return none.sent
		}
		return cutOff(one)
	})
}

// passing reports whether the same may be answered in a moment.
func passing(err error) bool {
	return slices.ContainsFunc(each(err), func(one error) bool {
		var p *Problem
		var none *unreachedError
		return errors.As(one, &none) || errors.As(one, &p) && p.status >= http.StatusInternalServerError || cutOff(one)
	})
}

// cutOff is an answer that began well and did not end.
func cutOff(err error) bool {
	var broken *net.OpError
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.As(err, &broken)
}

// each are the errors of the coordinators that were asked.
func each(err error) []error {
	var several *severalError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &several):
		return several.errs
	}
	return []error{err}
}
