package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"berth"
)

// answer is what the stand-in says, with the thoughts a reasoning model would send before.
type answer struct{ text, reasoning string }

// answerTo derives the answer from the request alone: the same request always gets the same one.
func answerTo(ctx context.Context, req chatRequest, ocr OCR) (answer, error) {
	p := readPrompt(req.Messages)
	if len(p.images) > 0 {
		return answerImage(ctx, p, ocr)
	}
	switch p.template {
	case berth.TemplateJobMatch:
		m := comparePosting(p.posting(), parseResume(p.resume, p.detailed), p.jobText+"\n"+p.jobSummary, p.stored)
		return answer{matchText(m, p.locale), matchThoughts(m, p.locale)}, nil
	case berth.TemplateInterviewPrep:
		m := comparePosting(p.posting(), parseResume(p.resume, p.detailed), p.jobText+"\n"+p.jobSummary, p.stored)
		return answer{interviewText(m, p.locale), matchThoughts(m, p.locale)}, nil
	case berth.TemplateJobSummary:
		po := p.posting()
		return jsonAnswer(req, jobSummary(po, p.locale), postingThoughts(po, p.locale))
	case berth.TemplateResumeSummary:
		r := parseResume(p.resume, p.detailed)
		return jsonAnswer(req, resumeSummary(r, p.locale), resumeThoughts(r, p.locale))
	case berth.TemplateDetailedResumeSummary:
		r := parseResume(p.resume, p.detailed)
		return jsonAnswer(req, detailedSummary(r, p.locale), resumeThoughts(r, p.locale))
	case berth.TemplateResumeCustomize:
		m := comparePosting(p.posting(), parseResume(p.resume, p.detailed), p.jobText+"\n"+p.jobSummary, p.stored)
		return jsonAnswer(req, customized(m, p.locale), matchThoughts(m, p.locale))
	default:
		return plainAnswer(req, p)
	}
}

func answerImage(ctx context.Context, p prompt, ocr OCR) (answer, error) {
	var read []string
	for _, url := range p.images {
		img, err := decodeImage(url)
		if err != nil {
			return answer{}, invalidRequest("messages", "image_url: %s", err)
		}
		text, err := ocr(ctx, img)
		if err != nil {
			return answer{}, fmt.Errorf("read the picture: %w", err)
		}
		if text = strings.TrimSpace(text); text != "" {
			read = append(read, text)
		}
	}
	if len(read) == 0 {
		return answer{text: say(p.locale, "[no text]", "[无文字]")}, nil // the prompt asks for exactly this
	}
	text := strings.Join(read, "\n\n")
	return answer{
		text: text + "\n" + say(p.locale, noticeOCREN, noticeOCRZH),
		reasoning: fmt.Sprintf(say(p.locale, "Tesseract read %d characters in %d lines.", "Tesseract 识别出 %d 个字符，共 %d 行。"),
			len([]rune(text)), strings.Count(text, "\n")+1),
	}, nil
}

// plainAnswer is for requests that are none of berth's templates.
func plainAnswer(req chatRequest, p prompt) (answer, error) {
	var names []string
	for _, m := range mentions(p.plain, dictionary) {
		names = append(names, m.skill.name(p.locale))
	}
	words := len(cutTokens(p.plain))
	first := clip(strings.Join(strings.Fields(p.plain), " "), 120)
	if req.ResponseFormat != nil && req.ResponseFormat.Type != "text" && req.ResponseFormat.Type != "" {
		return jsonAnswer(req, map[string]any{
			"answer": first, "skills": emptyNotNil(names), "tokens": words, "note": notice(p.locale),
		}, "")
	}
	text := fmt.Sprintf(say(p.locale, "You wrote %d tokens, beginning “%s”.", "你写了 %d 个词元，开头是“%s”。"), words, first)
	if len(names) > 0 {
		text += fmt.Sprintf(say(p.locale, " Skills named: %s.", "提到的技能：%s。"), strings.Join(names, say(p.locale, ", ", "、")))
	}
	return answer{text: text + "\n\n" + notice(p.locale)}, nil
}

// jsonAnswer writes v, brought into the shape of the request's own schema where it has one.
func jsonAnswer(req chatRequest, v any, reasoning string) (answer, error) {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return answer{}, fmt.Errorf("write answer: %w", err)
	}
	if f := req.ResponseFormat; f != nil && f.JSONSchema != nil && len(f.JSONSchema.Schema) > 0 {
		if b, err = conform(b, f.JSONSchema.Schema); err != nil {
			return answer{}, invalidRequest("response_format", "json_schema: %s", err)
		}
	}
	return answer{text: string(b), reasoning: reasoning}, nil
}

func postingThoughts(p posting, l berth.Locale) string {
	return fmt.Sprintf(say(l,
		"The posting has %d duties, %d requirements and %d wishes. It names %d skills.",
		"招聘信息包含 %d 条职责、%d 条要求、%d 条加分项，提到 %d 项技能。"),
		len(p.responsibilities), len(p.mustHave), len(p.niceToHave), len(p.skills))
}

func resumeThoughts(r resume, l berth.Locale) string {
	return fmt.Sprintf(say(l,
		"The résumé has %d positions and %d skills that I know; %d years.",
		"简历包含 %d 段经历、%d 项已知技能，约 %d 年经验。"),
		len(r.roles), len(r.skills), r.years)
}

func matchThoughts(m match, l berth.Locale) string {
	return postingThoughts(m.posting, l) + " " + resumeThoughts(m.resume, l) + " " + fmt.Sprintf(say(l,
		"Holding them against each other: %d of %d requirements have proof.",
		"逐条对照：%d / %d 条要求有依据。"), len(matchedOf(m.required)), len(m.required))
}

// clip cuts a text to at most n characters.
func clip(s string, n int) string {
	if len(s) <= n { // no more characters than bytes
		return s
	}
	if r := []rune(s); len(r) > n {
		return strings.TrimSpace(string(r[:n]))
	}
	return s
}

func emptyNotNil[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
