package api_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/oomfleet/oomfleet/coordinator/api"
)

// Example asks for a quota. docs/api.md shows the same lines.
func Example() {
	ctx := context.Background()
	client, err := api.NewClient("http://host-a:7400,http://host-b:7400,http://host-c:7400")
	if err != nil {
		panic(err)
	}
	answer, err := client.Quota(ctx, url.Values{"seq_len": {"384"}, "driver": {"580.159.04"}})
	var no *api.Problem
	switch {
	case errors.As(err, &no):
		fmt.Println(no.Code, no.Message) // unknown_driver, outside_domain, no_leader, ...
	case err != nil:
		fmt.Println(err) // nobody answers
	default:
		fmt.Println(answer.Quota, answer.Basis, answer.AppliedIndex)
	}
}
