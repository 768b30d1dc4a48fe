package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"berth"
	"berth/client"
	"berth/internal/agent"
	"berth/internal/extract"
	"berth/internal/setting"
	"berth/internal/template"
	"berth/internal/userfile"
)

type taskCommands struct {
	Submit taskSubmit `cmd:"" help:"Submit a task."`
	Watch  taskWatch  `cmd:"" help:"Follow a task: position, stage, tokens."`
	Get    taskGet    `cmd:"" help:"Print a task's status and result as JSON."`
	List   taskList   `cmd:"" help:"List tasks, newest first."`
	Cancel taskCancel `cmd:"" help:"Cancel a task."`
}

type taskSubmit struct {
	agent.Server `embed:""`
	From         string         `help:"Submit the input of this task again, as a new task. Other flags replace parts of it." placeholder:"ID"`
	Template     berth.Template `help:"Use this template; 'berth template list --server' lists them."`
	Version      string         `help:"Use this version of the template, active or not; for operators." name:"template-version" placeholder:"HASH"`
	Locale       berth.Locale   `help:"Answer in this language. Default: the first of the template."`
	Service      string         `help:"Account the task to this service. Default: cli."`
	EndUser      string         `help:"Count the task for this user of the application, where the token or the service names one."`
	Title        string         `help:"Give the task this title in lists. Default: the name of a file, or the first words of a text."`
	ID           string         `help:"Use this task id. Submitting the same task again returns the first one." name:"id"`
	Var          []string       `help:"Set a variable of the template: NAME=TEXT, or NAME=@FILE for a text, an image or a document such as PDF, DOCX, ODT, HTML or mail. An image also goes to NAME's alternative that takes one." short:"v" placeholder:"NAME=VALUE" sep:"none"`
	Watch        bool           `help:"Follow the task after it was submitted."`
}

// Run uploads the files, submits the task and prints its id.
func (c *taskSubmit) Run(ctx context.Context, api *client.Client) error {
	sub, key, err := c.submission(ctx, api)
	if err != nil {
		return err
	}
	if len(c.Var) > 0 {
		t, err := templateOf(ctx, api, sub.Template, sub.TemplateVersion)
		if err != nil {
			return err
		}
		for _, given := range c.Var {
			if err := setVariable(ctx, api, t, &sub, given); err != nil {
				return err
			}
		}
	}
	sub.Title = cmp.Or(c.Title, sub.Title)
	acc, err := api.Submit(ctx, sub, key)
	if err != nil {
		return err
	}
	printAcceptance(acc, os.Stdout, os.Stderr)
	if !c.Watch {
		return nil
	}
	return follow(ctx, api, acc.TaskID, screen{os.Stdout, os.Stderr, terminal(os.Stdout)})
}

// submission returns what is submitted before the variables of the flags: nothing, or all of another task. Its key makes it a new one.
func (c *taskSubmit) submission(ctx context.Context, api *client.Client) (sub client.Submission, key string, err error) {
	variables := map[string]any{}
	switch {
	case c.From != "":
		t, err := api.Get(ctx, c.From)
		if err != nil {
			return sub, "", taskError(c.From, err)
		}
		for name, ref := range t.Variables {
			variables[name] = ref
		}
		sub = client.Submission{Title: t.Title, ServiceID: t.ServiceID, EndUser: t.EndUser, Template: t.Template, Locale: t.Locale}
		if c.ID == "" {
			key = berth.NewID("")
		}
	case c.Template == "":
		return sub, "", errors.New("missing flags: --template, or --from to submit a task again")
	}
	return client.Submission{
		TaskID: c.ID, Title: sub.Title, Variables: variables, ServiceID: cmp.Or(c.Service, sub.ServiceID, "cli"), EndUser: cmp.Or(c.EndUser, sub.EndUser),
		Template: cmp.Or(c.Template, sub.Template), TemplateVersion: c.Version, Locale: cmp.Or(c.Locale, sub.Locale),
	}, key, nil
}

// templateOf returns a template of the server, in that version if one is given.
func templateOf(ctx context.Context, api *client.Client, name berth.Template, version string) (client.Template, error) {
	if version != "" {
		v, err := api.TemplateVersion(ctx, name, version)
		if err == nil && v.Template == nil {
			err = fmt.Errorf("this release cannot read version %s of template %s: %s", version, name, strings.Join(v.Warnings, "; "))
		}
		if err != nil {
			return client.Template{}, err
		}
		return *v.Template, nil
	}
	all, err := api.Templates(ctx, client.TemplateQuery{})
	if err != nil {
		return client.Template{}, err
	}
	for _, t := range all {
		if t.Name == name {
			return t, nil
		}
	}
	return client.Template{}, setting.Wrong(fmt.Errorf("template %q not found: use one of %s", name, join(namesOf(all, func(t client.Template) berth.Template { return t.Name }))))
}

// setVariable sets a variable as --var states it, and uploads its file.
func setVariable(ctx context.Context, api *client.Client, t client.Template, sub *client.Submission, given string) error {
	name, value, ok := strings.Cut(given, "=")
	if !ok {
		return setting.Wrong(fmt.Errorf("--var %.40s: write NAME=TEXT or NAME=@FILE", given))
	}
	v, err := variableOf(t, name)
	if err != nil {
		return setting.Wrong(err)
	}
	file, isFile := strings.CutPrefix(value, "@")
	if !isFile {
		replace(t, sub, v, value)
		return nil
	}
	content, err := userfile.Read(file, berth.MaxUploadBytes)
	if err != nil {
		return setting.Wrong(fmt.Errorf("--var %s: %w", name, err))
	}
	if v, ok = takes(t, v, extract.Detect(content, file).Image != ""); !ok {
		return setting.Wrong(fmt.Errorf("--var %s: %s takes %s, which %s is not", name, t.Name, map[bool]string{true: "an image", false: "a text or document"}[v.Kind == imageKind], file))
	}
	id, err := api.Upload(ctx, file, content)
	if err != nil {
		return fmt.Errorf("upload %s: %w", file, err)
	}
	replace(t, sub, v, client.AssetRef(id))
	return nil
}

// imageKind is the kind of variables that are images.
const imageKind = string(template.KindImage)

func variableOf(t client.Template, name string) (client.TemplateVariable, error) {
	names := make([]string, len(t.Variables))
	for i, v := range t.Variables {
		if v.Name == name {
			return v, nil
		}
		names[i] = v.Name
	}
	if len(names) == 0 {
		return client.TemplateVariable{}, fmt.Errorf("--var %.40s: %s takes no variables", name, t.Name)
	}
	return client.TemplateVariable{}, fmt.Errorf("--var %.40s: unknown variable; %s takes %s", name, t.Name, strings.Join(names, ", "))
}

// takes returns the variable for a file: the named one, or its first alternative that takes images, or texts.
func takes(t client.Template, v client.TemplateVariable, image bool) (client.TemplateVariable, bool) {
	if (v.Kind == imageKind) == image {
		return v, true
	}
	i := slices.IndexFunc(t.Variables, func(other client.TemplateVariable) bool {
		return v.Group != "" && other.Group == v.Group && (other.Kind == imageKind) == image
	})
	if i < 0 {
		return v, false
	}
	return t.Variables[i], true
}

// replace sets a variable in place of its alternatives. Another input has another title.
func replace(t client.Template, sub *client.Submission, v client.TemplateVariable, value any) {
	for _, other := range t.Variables {
		if v.Group != "" && other.Group == v.Group {
			delete(sub.Variables, other.Name)
		}
	}
	sub.Variables[v.Name], sub.Title = value, ""
}

func printAcceptance(acc client.Acceptance, out, info io.Writer) {
	fmt.Fprintln(out, acc.TaskID)
	if acc.Replay {
		fmt.Fprintf(info, "· this task had already been submitted (status %s); nothing was started\n", acc.Status)
	}
	if acc.Downgraded {
		fmt.Fprintln(info, "· the task uses the free tier, because the account has too few credits for it")
	}
}

// oneTask is the task that a command is for.
type oneTask struct {
	ID   idArg  `arg:"" help:"Task id."`
	User string `help:"Select the task of this user, for operators. Needed only if several users have a task with this id."`
}

type taskWatch struct {
	agent.Server `embed:""`
	oneTask
}

// Run follows the task to its end.
func (c *taskWatch) Run(ctx context.Context, api *client.Client) error {
	return follow(ctx, api.OfUser(c.User), string(c.ID), screen{os.Stdout, os.Stderr, terminal(os.Stdout)})
}

// screen is where a followed task is shown: its answer on out, progress on info.
type screen struct {
	out, info io.Writer
	// live: out shows the answer as it arrives. A file has only the final one, because that of a lost attempt cannot be removed from it.
	live bool
}

// terminal reports whether f is a terminal.
func terminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// follow shows the task until it ends. It returns the error with which the task ended.
func follow(ctx context.Context, api *client.Client, id string, s screen) error {
	wrote := false // a part of the current attempt's answer
	for ev, err := range api.Follow(ctx, id, "") {
		if err != nil {
			return taskError(id, err)
		}
		switch e := ev.Event; e.Type {
		case berth.EventToken, berth.EventTokenBatch:
			if s.live {
				fmt.Fprint(s.out, printable(e.Text))
				wrote = true
			}
		case berth.EventQueued:
			fmt.Fprintf(s.info, "· queued%s (%s, %s)\n", wait(e), e.Queue, e.Model)
		case berth.EventStart:
			fmt.Fprintf(s.info, "· started on %s%s\n", e.Model, simulated(e.Simulated))
		case berth.EventStageProgress:
			progress(s.info, e, wrote)
		case berth.EventReset:
			if wrote {
				fmt.Fprint(s.out, "\n--- the answer starts again ---\n")
				wrote = false
			}
			fmt.Fprintf(s.info, "· %s\n", e.Message)
		case berth.EventGap:
			fmt.Fprintln(s.info, "\n· part of the history is no longer stored")
		case berth.EventError:
			return fmt.Errorf("task %s: %s (%s)", strings.ToLower(string(e.Status)), e.Message, e.Code)
		case berth.EventDone:
			return finished(e, wrote, s.out, s.info)
		}
	}
	return nil
}

// wait describes how long a queued task waits.
func wait(e berth.Event) string {
	text := ""
	if e.Position != nil {
		text = fmt.Sprintf(": %d ahead", *e.Position)
	}
	if e.EtaSeconds != nil {
		text += fmt.Sprintf(", about %s", time.Duration(*e.EtaSeconds)*time.Second)
	}
	switch {
	case e.Paused && len(e.Upstreams) > 0:
		text += ", paused: " + strings.Join(e.Upstreams, ", ")
	case e.Paused:
		text += ", the model is paused"
	}
	return text
}

func progress(info io.Writer, e berth.Event, wrote bool) {
	if wrote && e.Message != "" {
		fmt.Fprintln(info)
	}
	for _, item := range e.Items {
		fmt.Fprintf(info, "  %s %s\n", item.Kind, printable(string(item.Value)))
	}
	if e.Message != "" {
		fmt.Fprintf(info, "· %s: %s%s\n", e.Stage, e.Message, simulated(e.Simulated))
	}
}

func finished(e berth.Event, wrote bool, out, info io.Writer) error {
	if !wrote && e.Text != "" {
		fmt.Fprint(out, printable(e.Text))
	}
	if e.Text == "" && len(e.Result) > 0 {
		var pretty bytes.Buffer
		if err := json.Indent(&pretty, e.Result, "", "  "); err != nil {
			return fmt.Errorf("format result: %w", err)
		}
		fmt.Fprint(out, pretty.String())
	}
	if e.Text == "" && len(e.Result) == 0 { // a task without either does not complete
		fmt.Fprintln(info, "· the texts of the task were erased")
	} else {
		fmt.Fprintln(out)
	}
	if e.FinishReason == berth.FinishLength {
		fmt.Fprintln(info, "· the answer is truncated: the model reached its token limit")
	}
	if e.PromptTruncated {
		fmt.Fprintln(info, "· the provider read only a part of the prompt: the answer may lack what stands at its beginning or end")
	}
	if e.Usage != nil {
		fmt.Fprintf(info, "· done: %d tokens in, %d out\n", e.Usage.InputTokens, e.Usage.OutputTokens)
	}
	return nil
}

func simulated(yes bool) string {
	if yes {
		return " (simulated model)"
	}
	return ""
}

// printable removes control characters from a text of a model or another user: a terminal would execute them.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || (r >= ' ' && r != 0x7f && (r < 0x80 || r > 0x9f)) {
			return r
		}
		return -1
	}, s)
}

type taskGet struct {
	agent.Server `embed:""`
	oneTask
}

// Run prints the task as JSON.
func (c *taskGet) Run(ctx context.Context, api *client.Client) error {
	t, err := api.OfUser(c.User).Describe(ctx, string(c.ID))
	if err != nil {
		return taskError(string(c.ID), err)
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, t, "", "  "); err != nil {
		return fmt.Errorf("format task: %w", err)
	}
	fmt.Println(pretty.String())
	return nil
}

type taskList struct {
	agent.Server `embed:""`
	User         string           `help:"List the tasks of this user, for operators. Default: the token's user."`
	Status       berth.TaskStatus `help:"List tasks with this status, such as STREAMING, COMPLETED, FAILED or CANCELLED."`
	Template     berth.Template   `help:"List tasks of this template."`
	Search       string           `help:"List tasks whose title has these words in this order, whatever their case."`
	Service      string           `help:"List tasks of this service."`
	Team         string           `help:"List tasks that count for this team."`
	Open         bool             `help:"List tasks that have not ended."`
	Since        time.Duration    `help:"List tasks accepted within this time, such as 24h."`
	From         timeFlag         `help:"List tasks accepted at or after this time, such as 2026-01-31T08:00:00Z." placeholder:"TIME"`
	To           timeFlag         `help:"List tasks accepted before this time." placeholder:"TIME"`
	Limit        int              `help:"Maximum number of tasks." default:"20"`
	Cursor       string           `help:"Continue a list after the page that printed this cursor."`
}

// Run prints the tasks as a table.
func (c *taskList) Run(ctx context.Context, api *client.Client) error {
	q := client.TaskQuery{
		UserID: c.User, Status: c.Status, Template: c.Template, Title: c.Search, ServiceID: c.Service, TeamID: c.Team, Open: c.Open, From: c.From.Time, To: c.To.Time, Limit: c.Limit, Cursor: c.Cursor,
	}
	switch {
	case c.Since < 0:
		return errors.New("--since must not be negative")
	case c.Since > 0 && !c.From.IsZero():
		return errors.New("use --since or --from, not both")
	case c.Since > 0:
		q.From = time.Now().Add(-c.Since)
	}
	tasks, next, err := api.Tasks(ctx, q)
	if err != nil {
		return err
	}
	if err := printTasks(os.Stdout, tasks); err != nil {
		return err
	}
	if next != "" {
		fmt.Fprintf(os.Stderr, "more tasks: --cursor %s\n", next)
	}
	return nil
}

func printTasks(out io.Writer, tasks []client.Task) error {
	w := newTable(out)
	fmt.Fprintln(w, "ACCEPTED\tTASK\tTEMPLATE\tTIER\tSTATUS\tERROR\tTITLE")
	for _, t := range tasks {
		code := berth.Code("")
		if t.Error != nil {
			code = t.Error.Code
		}
		status := string(t.Status)
		if t.Status == berth.TaskCompleted && t.FinishReason == berth.FinishLength {
			status += ", truncated"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", t.CreatedAt.Local().Format(time.DateTime), t.ID, t.Template, t.Tier, status, code, named(t.Title))
	}
	return w.Flush()
}

type taskCancel struct {
	agent.Server `embed:""`
	oneTask
}

// Run requests the cancellation of the task.
func (c *taskCancel) Run(ctx context.Context, api *client.Client) error {
	return taskError(string(c.ID), api.OfUser(c.User).Cancel(ctx, string(c.ID)))
}

// taskError returns in place of some errors of the API what the caller can check.
func taskError(id string, err error) error {
	if p, ok := errors.AsType[*client.Problem](err); ok && p.Code == berth.CodeConflict && p.Field == "userId" {
		return setting.Wrong(fmt.Errorf("several users have a task %s: select one with --user", id))
	}
	if problemCode(err) != berth.CodeNotFound {
		return err
	}
	return setting.Wrong(fmt.Errorf("task %s not found: check the id, and that BERTH_TOKEN belongs to the user who submitted it", id))
}
