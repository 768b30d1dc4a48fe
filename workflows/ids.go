package workflows

import (
	"strings"

	"berth"
)

const (
	// maxWorkflowID bounds a workflow id, in bytes: PostgreSQL and MySQL store the ids of workflows in 255 characters.
	maxWorkflowID = 255
	// shortened precedes the hash in a shortened id. The names of workflows do not contain it.
	shortened = "~"
)

// WorkflowID returns the id of the workflow with a name, such as task:alice:t1: the name or, where that is too long, its beginning and
// a hash. Names differ exactly where their ids do. It is the only function that makes ids of workflows.
func WorkflowID(name string) string {
	if len(name) <= maxWorkflowID {
		return name
	}
	hash := shortened + berth.DerivedID("", name)
	return name[:maxWorkflowID-len(hash)] + hash
}

// Shortened reports whether a workflow id is not the name of the workflow.
func Shortened(workflowID string) bool { return strings.Contains(workflowID, shortened) }

// TaskName returns the name of a task's workflow, which contains the ids of user and task.
func TaskName(task berth.TaskRef) string { return TaskPrefix + task.String() }
