package sim

import (
	"regexp"
	"strings"

	"berth"
)

// prompt is what the stand-in understood of a request: which template, in which language, on which texts.
type prompt struct {
	template   berth.Template // empty: none of berth's
	locale     berth.Locale
	jobText    string
	jobSummary string
	resume     string
	detailed   string
	notes      string
	stored     []string // passages and summaries of earlier résumés
	images     []string
	plain      string // what the user wrote, for requests without template
}

var (
	templateLine = regexp.MustCompile(`(?m)^\s*(?:berth-template|Task):\s*([a-z_]+)\s*$`)
	localeLine   = regexp.MustCompile(`(?m)^\s*berth-locale:\s*([A-Za-z-]+)\s*$`)
	opening      = regexp.MustCompile(`<document name="([^"]*)" id="([^"]*)">\n`)
)

// readPrompt recognises berth's prompts by the template's name in the system message and takes their documents out
// of the user's messages. The language is the one named there, else that of the system message.
func readPrompt(messages []chatMessage) prompt {
	p := prompt{locale: berth.LocaleEN}
	var system, user strings.Builder
	for _, m := range messages {
		switch m.Role {
		case "system", "developer":
			system.WriteString(m.Text + "\n")
		case "user":
			user.WriteString(m.Text + "\n")
			p.images = append(p.images, m.Images...)
		}
	}
	if m := templateLine.FindStringSubmatch(system.String()); m != nil {
		p.template = berth.Template(m[1])
	}
	asked := system.String()
	if p.template == "" {
		asked += user.String()
	}
	if m := localeLine.FindStringSubmatch(asked); m != nil {
		if strings.HasPrefix(strings.ToLower(m[1]), "zh") {
			p.locale = berth.LocaleZH
		}
	} else if strings.ContainsFunc(asked, isCJK) {
		p.locale = berth.LocaleZH
	}
	p.plain = strings.TrimSpace(user.String())
	docs := p.readDocuments(user.String())
	if docs == 0 { // somebody else's prompt: the whole message is the one text the template needs
		switch p.template {
		case berth.TemplateJobSummary:
			p.jobText = p.plain
		case berth.TemplateResumeSummary, berth.TemplateDetailedResumeSummary:
			p.resume = p.plain
		}
	}
	return p
}

// readDocuments takes the texts between document lines, each closed by a line with its own id, and tells how many
// there were. What a text contains is never looked into for further documents.
func (p *prompt) readDocuments(text string) int {
	n := 0
	for {
		at := opening.FindStringSubmatchIndex(text)
		if at == nil {
			return n
		}
		name, id := text[at[2]:at[3]], text[at[4]:at[5]]
		body, rest, ok := strings.Cut(text[at[1]:], "\n</document id=\""+id+"\">")
		if !ok {
			text = text[at[1]:]
			continue
		}
		n++
		text = rest
		switch name {
		case "job_posting":
			p.jobText = body
		case "job_summary":
			p.jobSummary = body
		case "resume":
			p.resume = body
		case "detailed_resume":
			p.detailed = body
		case "notes":
			p.notes = body
		case "passage", "stored_summary":
			p.stored = append(p.stored, body)
		}
	}
}

// posting is the job posting of the prompt. A summary of an earlier step is preferred to the text it was made of
// only where the text is missing: the text says more.
func (p prompt) posting() posting {
	if strings.TrimSpace(p.jobText) == "" {
		return parsePosting(p.jobSummary)
	}
	out := parsePosting(p.jobText)
	if len(out.required) == 0 && p.jobSummary != "" {
		return parsePosting(p.jobSummary)
	}
	return out
}

// Notices by which every answer names its origin, a sentence each.
const (
	noticeEN    = "Written by berth's local stand-in model from the given texts by plain rules, without an AI provider."
	noticeZH    = "本回答由 berth 本地替身模型（local stand-in）按简单规则从所给文本得出，未调用 AI 服务商。"
	noticeOCREN = "(Read by Tesseract for berth's local stand-in model)"
	noticeOCRZH = "（berth 本地替身模型 local stand-in，Tesseract 识别）"
)

func notice(l berth.Locale) string { return say(l, noticeEN, noticeZH) }

// withoutNotice takes the notices out of a line, so that an answer used as input is not taken for content.
func withoutNotice(s string) string {
	for _, n := range []string{noticeEN, noticeZH, noticeOCREN, noticeOCRZH} {
		if strings.Contains(s, n) {
			s = strings.Trim(strings.ReplaceAll(s, n, ""), " _>")
		}
	}
	return s
}

// say is the text in the locale.
func say(l berth.Locale, en, zh string) string {
	if l == berth.LocaleZH {
		return zh
	}
	return en
}
