package berth

import (
	"net/url"
	"strings"
	"time"
)

// ReconcileRule is the name of one rule of the reconciliation, which compares the database, workflow runs, Redis and the fleet.
type ReconcileRule string

// The rules. Each has a row in the table reconcileRules.
const (
	RuleTaskWithoutRun       ReconcileRule = "task-without-run"
	RuleTaskOverdue          ReconcileRule = "task-past-deadline"
	RuleRunWithoutTask       ReconcileRule = "run-without-task"
	RuleStreamWithoutRun     ReconcileRule = "stream-without-run"
	RuleAdmissionWithoutTask ReconcileRule = "admission-without-task"
	RuleBalance              ReconcileRule = "balance"
	RuleTaskUnsettled        ReconcileRule = "task-not-settled"
	RuleCallUnsettled        ReconcileRule = "call-not-settled"
	RuleTurnWithoutRun       ReconcileRule = "turn-without-run"
	RuleSlotWithoutRun       ReconcileRule = "slot-without-run"

	RuleExecutionWithoutRun ReconcileRule = "execution-without-run"
	RuleExecutionOverdue    ReconcileRule = "execution-past-deadline"
	RuleRunWithoutExecution ReconcileRule = "run-without-execution"

	RuleDeliveryWithoutRun ReconcileRule = "delivery-without-run"

	RuleConferenceWithoutRun     ReconcileRule = "conference-without-run"
	RuleRunWithoutConference     ReconcileRule = "run-without-conference"
	RuleOwnerNotLive             ReconcileRule = "owner-not-live"
	RuleLicenceWithoutConference ReconcileRule = "licence-without-conference"
	RuleMemberWithoutNode        ReconcileRule = "member-without-node"
)

// ReconcileRuleInfo describes a rule.
type ReconcileRuleInfo struct {
	Rule ReconcileRule
	// Finds is the difference that it finds, and Repairs what is done about it.
	Finds, Repairs string
	// FullOnly indicates that quick passes do not apply the rule.
	FullOnly bool
}

// reconcileRules has one row per rule, in the order in which differences are repaired.
var reconcileRules = []ReconcileRuleInfo{
	{
		Rule: RuleRunWithoutTask, FullOnly: true,
		Finds: "a run of a task has no row, because an older database was restored", Repairs: "the row is written again from the run's input, with its charge",
	},
	{
		Rule:  RuleTaskWithoutRun,
		Finds: "an unfinished task has no run", Repairs: "it fails with the code lost; the charge is refunded and its stream ends",
	},
	{
		Rule:  RuleTaskOverdue,
		Finds: "a task is unfinished a minute after its deadline", Repairs: "it fails with the code deadline_exceeded and its run is terminated",
	},
	{
		Rule:  RuleStreamWithoutRun,
		Finds: "a task has ended and has no run, but its stream is open", Repairs: "the terminal event is appended",
	},
	{
		Rule:  RuleTaskUnsettled,
		Finds: "a metered task ended ten minutes ago, and what its last call used was never reported", Repairs: "it is settled without that call",
	},
	{
		Rule:  RuleCallUnsettled,
		Finds: "the process of direct calls was not seen for a minute, or the calls had to end a minute ago", Repairs: "each is settled as interrupted, and all that was reserved is returned",
	},
	{
		Rule: RuleAdmissionWithoutTask, FullOnly: true,
		Finds: "an admission to a queue belongs to no unfinished task and to no run", Repairs: "the admission is removed",
	},
	{
		Rule: RuleRunWithoutConference, FullOnly: true,
		Finds: "a run of a conference has no row, because an older database was restored", Repairs: "the run writes its row",
	},
	{
		Rule:  RuleConferenceWithoutRun,
		Finds: "an open conference has no run", Repairs: "a run continues from the row and adopts the copy on the unit, or recovers the conference",
	},
	{
		Rule:  RuleOwnerNotLive,
		Finds: "the unit of an open conference is not registered as the generation that runs it", Repairs: "the conference is notified of the loss, or the unit lists what it runs",
	},
	{
		Rule: RuleMemberWithoutNode, FullOnly: true,
		Finds: "the indexes of pools have a node that is not registered", Repairs: "the node is removed from them, and the nodes are counted again",
	},
	{
		Rule: RuleLicenceWithoutConference, FullOnly: true,
		Finds: "a licence belongs to no open conference", Repairs: "the licence is released",
	},
	{
		Rule:  RuleTurnWithoutRun,
		Finds: "a turn has an affinity and no run", Repairs: "the affinity is deleted and the turn's done is published",
	},
	{
		Rule: RuleRunWithoutExecution, FullOnly: true,
		Finds: "a run of an execution has no row, because an older database was restored", Repairs: "the row is written again from the state of the run",
	},
	{
		Rule:  RuleExecutionWithoutRun,
		Finds: "an open execution has no run", Repairs: "it ends as its run has, or fails with the code lost",
	},
	{
		Rule:  RuleExecutionOverdue,
		Finds: "an execution is open a minute after its deadline", Repairs: "its run is terminated and it fails with the code deadline_exceeded",
	},
	{
		Rule:  RuleDeliveryWithoutRun,
		Finds: "an event of a webhook was to be sent a minute ago and has no run", Repairs: "the run is started",
	},
	{
		Rule:  RuleSlotWithoutRun,
		Finds: "an execution or conference holds a slot of a node and has no run", Repairs: "the slot is released",
	},
	{
		Rule: RuleBalance, FullOnly: true,
		Finds: "the entries of an account do not sum to its balance", Repairs: "the balance becomes the sum of the entries",
	},
}

// ReconcileRules returns all rules, in the order in which differences are repaired.
func ReconcileRules() []ReconcileRuleInfo { return reconcileRules }

// ReconcileKind is how much a pass compares.
type ReconcileKind string

// The kinds of passes.
const (
	ReconcileQuick ReconcileKind = "quick" // what has changed since the last pass, and what is past its deadline
	ReconcileFull  ReconcileKind = "full"  // everything that is open
)

// ReconcileStatus is how a pass has ended.
type ReconcileStatus string

// The statuses of passes.
const (
	ReconcileCompleted ReconcileStatus = "completed"
	ReconcileStopped   ReconcileStatus = "stopped" // it found more differences than may be repaired without an operator
	ReconcileSkipped   ReconcileStatus = "skipped" // a dependency was unavailable, or has just become available again
	// ReconcileIncomplete is the status of a pass that repaired what it found, but could not make all its comparisons.
	ReconcileIncomplete ReconcileStatus = "incomplete"
)

// ReconcileOutcome is the outcome of a finding.
type ReconcileOutcome string

// The outcomes of findings.
const (
	FindingFound    ReconcileOutcome = "found"    // it is not checked again yet
	FindingGone     ReconcileOutcome = "gone"     // it did not hold at the second check
	FindingHolds    ReconcileOutcome = "holds"    // it held at the second check and was not repaired
	FindingRepaired ReconcileOutcome = "repaired" // it held at the second check and was repaired
	FindingFailed   ReconcileOutcome = "failed"   // its repair failed and is tried again by the next pass
)

// ReconcileFinding is one difference.
type ReconcileFinding struct {
	Rule ReconcileRule `json:"rule"`
	// Subject is what differs: the id of a workflow, a user, a process or a slot, or a node and its class, separated by a slash.
	Subject string `json:"subject"`
	// Version is the state of the subject when it was found; a repair applies to this state only.
	Version int64            `json:"version,omitempty"`
	Outcome ReconcileOutcome `json:"outcome"`
	// Message is why the repair failed.
	Message string `json:"message,omitempty"`
}

// ReconcileCount is how many findings of a rule a pass had.
type ReconcileCount struct {
	Rule ReconcileRule `json:"rule"`
	// Found is how many differences the first check found, Held how many of those examined again held at the second one.
	Found    int `json:"found"`
	Held     int `json:"held"`
	Repaired int `json:"repaired"`
	Failed   int `json:"failed"`
}

// ReconcilePass is one pass of the reconciliation.
type ReconcilePass struct {
	ID     string        `json:"passId"`
	Kind   ReconcileKind `json:"kind"`
	DryRun bool          `json:"dryRun,omitempty"` // nothing is repaired
	// Requested indicates that an operator started the pass.
	Requested bool            `json:"requested,omitempty"`
	Status    ReconcileStatus `json:"status"`
	Reason    string          `json:"reason,omitempty"` // why it was stopped, skipped or is incomplete
	StartedAt time.Time       `json:"startedAt"`
	EndedAt   time.Time       `json:"endedAt"`
	// Since is the time from which a quick pass considered what has changed.
	Since time.Time `json:"since,omitzero"`
	// Left is how many differences were found and are neither gone nor repaired.
	Left   int              `json:"left"`
	Counts []ReconcileCount `json:"counts"` // of the rules that found something
	// Findings are the first MaxListedFindings findings.
	Findings []ReconcileFinding `json:"findings"`
}

// MaxListedFindings is how many findings the record of a pass lists.
const MaxListedFindings = 100

// Found returns how many differences the pass found.
func (p ReconcilePass) Found() (n int) {
	for _, c := range p.Counts {
		n += c.Found
	}
	return n
}

// Repaired returns how many differences the pass repaired.
func (p ReconcilePass) Repaired() (n int) {
	for _, c := range p.Counts {
		n += c.Repaired
	}
	return n
}

// ParseTaskRef returns the task whose TaskRef has the given text.
func ParseTaskRef(s string) (TaskRef, bool) {
	user, task, ok := strings.Cut(s, ":")
	if !ok || user == "" || task == "" {
		return TaskRef{}, false
	}
	user, err := url.PathUnescape(user)
	return TaskRef{UserID: user, TaskID: task}, err == nil
}
