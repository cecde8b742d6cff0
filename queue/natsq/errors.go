package natsq

import (
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/oomfleet/oomfleet/queue"
)

// The server's error codes that this package tells apart and that the client
// does not name. Source: nats-server, server/errors.json.
const (
	codeAccountFull     jetstream.ErrorCode = 10002 // resource limits exceeded for account
	codeServerFull      jetstream.ErrorCode = 10023 // insufficient resources
	codeStorageFull     jetstream.ErrorCode = 10047 // insufficient storage resources available
	codeStoreFailed     jetstream.ErrorCode = 10077 // among others: maximum messages exceeded
	codeFilterNotUnique jetstream.ErrorCode = 10100 // filtered consumer not unique on workqueue stream
)

// publishError gives the refusals of the server the names of package queue.
func publishError(err error) error {
	var api *jetstream.APIError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("%w: %w", queue.ErrTooLarge, err)
	case !errors.As(err, &api):
		return err
	}
	switch api.ErrorCode {
	case codeStoreFailed:
		if !strings.Contains(api.Description, "maximum messages exceeded") {
			return err
		}
		return fmt.Errorf("%w: %w", queue.ErrFull, err)
	case codeAccountFull, codeServerFull, codeStorageFull:
		return fmt.Errorf("%w: %w", queue.ErrFull, err)
	case jetstream.JSErrCodeStreamMessageExceedsMaximum:
		return fmt.Errorf("%w: %w", queue.ErrTooLarge, err)
	}
	return err
}

// isTaken reports that a message lies under the subject already.
func isTaken(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// isPermanent reports that waiting for the server cannot help.
func isPermanent(err error) bool {
	var no refused
	if errors.As(err, &no) {
		return true
	}
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.Code == 400 || api.ErrorCode == codeFilterNotUnique) &&
		!errors.Is(err, jetstream.ErrStreamNotFound) && !errors.Is(err, jetstream.ErrConsumerNotFound)
}
