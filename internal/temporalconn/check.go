package temporalconn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
)

// Checker checks whether berth can work with a Temporal server. All processes and berth doctor use it, and state the same problems.
type Checker struct {
	options    Options
	client     client.Client
	attributes []string
	complete   atomic.Bool // the namespace has had all attributes
}

// NewChecker returns the checker of a client that was opened with these options. Workflows use the search attributes, which are keywords.
func NewChecker(o Options, c client.Client, searchAttributes []string) *Checker {
	return &Checker{options: o, client: c, attributes: searchAttributes}
}

// Check returns an error with a *health.Problem unless Temporal responds, and has the namespace with all search attributes.
func (c *Checker) Check(ctx context.Context) error {
	if err := c.check(ctx); err != nil {
		return fmt.Errorf("temporal: %w", c.options.explain(ctx, err))
	}
	return nil
}

func (c *Checker) check(ctx context.Context) error {
	if _, err := c.client.CheckHealth(ctx, &client.CheckHealthRequest{}); err != nil {
		return err
	}
	namespace := c.options.namespace()
	found, err := c.client.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: namespace})
	var denied *serviceerror.PermissionDenied
	switch {
	case errors.As(err, &denied): // an account may be permitted to run workflows only
		return nil
	case err != nil:
		return err
	case found.GetNamespaceInfo().GetState() == enumspb.NAMESPACE_STATE_DELETED:
		return problem("namespace_deleted", namespaceSetting, "set a namespace that exists", fmt.Errorf("namespace %s is being deleted", namespace))
	case c.complete.Load():
		return nil
	}
	lacking, err := c.Lacking(ctx)
	switch {
	case err != nil: // the server does not list them, or not to this account
		return nil //nolint:nilerr // see above
	case len(lacking) > 0:
		return problem("search_attributes", namespaceSetting, "add them: temporal operator search-attribute create --namespace "+namespace+
			" --name "+strings.Join(lacking, " --type Keyword --name ")+" --type Keyword",
			fmt.Errorf("namespace %s lacks search attributes: %s", namespace, strings.Join(lacking, ", ")))
	}
	c.complete.Store(true)
	return nil
}

// Lacking returns the search attributes that the namespace lacks, or has with another type.
func (c *Checker) Lacking(ctx context.Context) (names []string, err error) {
	if len(c.attributes) == 0 {
		return nil, nil
	}
	known, err := c.client.OperatorService().ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: c.options.namespace()})
	if err != nil {
		return nil, err
	}
	for _, name := range c.attributes {
		if known.GetCustomAttributes()[name] != enumspb.INDEXED_VALUE_TYPE_KEYWORD {
			names = append(names, name)
		}
	}
	return names, nil
}

func (o Options) namespace() string { return cmp.Or(o.Namespace, client.DefaultNamespace) }
