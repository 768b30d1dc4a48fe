package doctor

import (
	"context"
	"log/slog"
	"strings"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/workflowservice/v1"

	"berth/internal/temporalconn"
)

func (d *doctor) temporal(ctx context.Context, searchAttributes []string) {
	const subject = "temporal"
	options, err := d.cfg.Temporal.Options(slog.New(slog.DiscardHandler))
	if err != nil {
		d.add(Error, subject, "", "%s", err)
		return
	}
	client, err := temporalconn.Open(options)
	if err != nil {
		d.add(Error, subject, "", "%s", err)
		return
	}
	defer client.Close()
	system, err := client.WorkflowService().GetSystemInfo(ctx, &workflowservice.GetSystemInfoRequest{})
	if err != nil {
		d.add(Error, subject, "check BERTH_TEMPORAL_ADDR, BERTH_TEMPORAL_TLS… and BERTH_TEMPORAL_API_KEY", "%s", err)
		return
	}
	d.add(OK, subject, "", "server %s", system.GetServerVersion())
	namespace := d.cfg.Temporal.Namespace
	_, err = client.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: namespace})
	if err != nil {
		d.add(Error, subject, "temporal operator namespace create --namespace "+namespace+" --retention 168h", "namespace %s: %s", namespace, err)
		return
	}
	known, err := client.OperatorService().ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: namespace})
	if err != nil {
		d.add(Warning, subject, "", "search attributes of namespace %s cannot be listed: %s", namespace, err)
		return
	}
	var missing []string
	for _, name := range searchAttributes {
		if known.GetCustomAttributes()[name] != enumspb.INDEXED_VALUE_TYPE_KEYWORD {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		d.add(Error, subject,
			"temporal operator search-attribute create --namespace "+namespace+" --name "+strings.Join(missing, " --type Keyword --name ")+" --type Keyword",
			"namespace %s lacks search attributes: %s", namespace, strings.Join(missing, ", "))
		return
	}
	d.add(OK, subject, "", "namespace %s with all search attributes", namespace)
}
