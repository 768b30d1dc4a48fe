package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"berth/internal/llm"
)

// answer is the content of a response, and the reasoning that a reasoning model would send before it.
type answer struct{ text, reasoning string }

// notices state in every answer that it is simulated: English and Chinese, of a text and of an image.
var notices = []string{
	"Simulated answer: derived from the given texts by berth's model simulator, without an AI provider.",
	"模拟回答：由 berth 的模型模拟器根据所给文本推导，未调用 AI 服务商。",
	"(Simulated answer: read by Tesseract)",
	"（模拟回答：由 Tesseract 识别）",
}

// source is what the simulator finds in a request.
type source struct {
	zh         bool
	system     string
	posting    []line
	profile    []line // the résumé, with its detailed version
	background []line // stored texts, which are no proof
	subject    []line // what is to be described: the profile, else the posting, else the whole message
	points     []point
}

// point is one thing that is looked for, with the line that has it.
type point struct {
	term     string
	optional bool
	found    line
	matched  bool
	hint     string // from the background
}

// answerTo derives the answer from the request alone, so that equal requests get equal answers: the text of its images,
// JSON if it asks for JSON, else Markdown.
func answerTo(ctx context.Context, req chatRequest, ocr OCR) (answer, error) {
	var system, user strings.Builder
	var images []string
	for _, m := range req.Messages {
		switch m.Role {
		case "system", "developer":
			system.WriteString(m.Text + "\n")
		case "user":
			user.WriteString(m.Text + "\n")
			images = append(images, m.Images...)
		}
	}
	s := readSource(system.String(), user.String())
	if len(images) > 0 {
		return s.readImages(ctx, images, ocr)
	}
	reasoning := s.say("%d requirements, %d lines about the applicant, %d requirements with a matching passage.",
		"共 %d 条要求，申请人材料 %d 行，%d 条要求有匹配段落。", len(s.points), len(s.profile), len(s.where(true)))
	if schema := findSchema(req, s.system); schema != nil {
		text, err := s.fill(schema)
		return answer{text, reasoning}, err
	}
	return answer{s.markdown(), reasoning}, nil
}

// readSource reads the documents of a prompt by their names. The language is that of the system message.
func readSource(system, user string) *source {
	s := &source{system: system, zh: strings.ContainsFunc(system, isCJK) || system == "" && strings.ContainsFunc(user, isCJK)}
	for _, d := range llm.Documents(user) {
		lines := readLines(d.Text)
		switch {
		case strings.HasPrefix(d.Name, "job_"):
			if len(texts(s.posting, requirements)) == 0 { // a summary repeats the posting
				s.posting = lines
			}
		case strings.HasSuffix(d.Name, "resume"):
			s.profile = append(s.profile, lines...)
		case d.Name == "passage", d.Name == "stored_summary":
			s.background = append(s.background, lines...)
		}
	}
	switch {
	case len(s.profile) > 0:
		s.subject = s.profile
	case len(s.posting) > 0:
		s.subject = s.posting
	default:
		s.subject = readLines(user)
	}
	s.compare()
	return s
}

// compare looks for every requirement of the posting in the profile. Without a posting, it looks for the skills that the
// profile lists in the rest of it.
func (s *source) compare() {
	wanted, optional := texts(s.posting, requirements), texts(s.posting, wishes)
	evidence := s.profile
	switch {
	case len(s.profile) == 0:
		return
	case len(s.posting) == 0:
		wanted = texts(s.profile, skills)
		evidence = slices.DeleteFunc(slices.Clone(s.profile), func(l line) bool { return l.topic == skills })
	case len(wanted) == 0:
		wanted = texts(s.posting, skills, duties, about, "")
	}
	hints := slices.DeleteFunc(slices.Clone(s.background), func(l line) bool {
		return slices.ContainsFunc(s.posting, func(p line) bool { return p.text == l.text })
	})
	for i, text := range append(wanted, optional...) {
		for _, term := range terms(text) {
			p := point{term: term, optional: i >= len(wanted)}
			if slices.ContainsFunc(s.points, func(q point) bool { return strings.EqualFold(p.term, q.term) }) {
				continue
			}
			if n := yearsIn(term); n > 0 {
				i := slices.IndexFunc(evidence, func(l line) bool { return yearsIn(l.text) >= n })
				if p.matched = i >= 0; p.matched {
					p.found = evidence[i]
				}
			} else if p.found, p.matched = best(words(term), evidence); !p.matched {
				hint, _ := best(words(term), hints)
				p.hint = clip(hint.text, maxQuote)
			}
			p.found.text = clip(p.found.text, maxQuote)
			s.points = append(s.points, p)
		}
	}
}

// where returns the required points that are matched, or that are not.
func (s *source) where(matched bool) []point {
	return slices.DeleteFunc(slices.Clone(s.points), func(p point) bool { return p.matched != matched || p.optional })
}

// score returns the matched share of the points in percent, and "3/4".
func score(points []point) (int, string) {
	n := 0
	for _, p := range points {
		if p.matched {
			n++
		}
	}
	return int(math.Round(100 * float64(n) / float64(max(len(points), 1)))), fmt.Sprintf("%d/%d", n, len(points))
}

func (s *source) say(en, zh string, args ...any) string {
	if s.zh {
		en = zh
	}
	return fmt.Sprintf(en, args...)
}

func (s *source) notice() string { return s.say(notices[0], notices[1]) }

// list joins the first n terms.
func (s *source) list(points []point, n int) string {
	out := []string{}
	for _, p := range points[:min(n, len(points))] {
		out = append(out, p.term)
	}
	if len(out) == 0 {
		return s.say("none", "无")
	}
	return strings.Join(out, s.say(", ", "、"))
}

func (s *source) readImages(ctx context.Context, urls []string, ocr OCR) (answer, error) {
	var read []string
	for _, url := range urls {
		img, err := decodeImage(url)
		if err != nil {
			return answer{}, invalid("image_url: %s", err)
		}
		text, err := ocr(ctx, img)
		if err != nil {
			return answer{}, fmt.Errorf("read the image: %w", err)
		}
		if text = strings.TrimSpace(text); text != "" {
			read = append(read, text)
		}
	}
	if len(read) == 0 {
		return answer{text: s.say("[no text]", "[无文字]")}, nil // what the prompt asks for
	}
	text := strings.Join(read, "\n\n")
	return answer{
		text + "\n" + s.say(notices[2], notices[3]),
		s.say("Tesseract read %d characters.", "Tesseract 识别出 %d 个字符。", len([]rune(text))),
	}, nil
}

// section is a part of a Markdown answer that a prompt asks for: behind a marker line, or as an item of a numbered list.
var section = regexp.MustCompile(`(?m)^(?:(<<stage:(\w+)>>)\s*$|(\d+\. [^:：,，。.\n]+))`)

// titles are the headings of sections that a prompt names only by a marker.
var titles = map[string][2]string{
	"ingest": {"What the posting is about", "岗位概要"}, "compare": {"Requirement by requirement", "逐条对照"},
	"score": {"Score", "评分"}, "deliver": {"Verdict", "结论"},
}

// writers say how to write a section, by its marker or title; the first that matches wins.
var writers = []struct {
	name  *regexp.Regexp
	write func(*source) []string
}{
	{regexp.MustCompile(`(?i)compare`), (*source).writePoints},
	{regexp.MustCompile(`(?i)score`), (*source).writeScore},
	{regexp.MustCompile(`(?i)deliver`), (*source).writeVerdict},
	{regexp.MustCompile(`(?i)weak|薄弱`), (*source).writeGaps},
	{regexp.MustCompile(`(?i)ask back|反问`), (*source).writeAskBack},
	{regexp.MustCompile(`(?i)question|问题`), (*source).writeQuestions},
	{regexp.MustCompile(`(?i)introduc|介绍`), (*source).writeIntroduction},
	{regexp.MustCompile(``), (*source).writeOverview},
}

// markdown writes the sections that the prompt asks for, or what the message is about.
func (s *source) markdown() string {
	var out []string
	for _, m := range section.FindAllStringSubmatch(s.system, -1) {
		marker, name, title := m[1], m[2], m[3]
		if marker != "" {
			out = append(out, marker)
			title = s.say(titles[name][0], titles[name][1])
		}
		out = append(out, "## "+title, "")
		for _, w := range writers {
			if w.name.MatchString(name + title) {
				out = append(out, w.write(s)...)
				break
			}
		}
		out = append(out, "")
	}
	if len(out) == 0 {
		out = s.writePlain()
	}
	if at := slices.Index(out, ""); at >= 0 {
		out = slices.Insert(out, at+1, "_"+s.notice()+"_", "")
	}
	return strings.TrimSpace(strings.Join(out, "\n")) + "\n"
}

func (s *source) writePlain() []string {
	text := strings.Join(texts(s.subject, ""), " ")
	out := []string{s.say("The message has %d words and begins “%s”.", "消息共 %d 个词元，开头是“%s”。", len(words(text)), clip(text, 120))}
	if found := names(text); len(found) > 0 {
		out = append(out, s.say("Names in it: %s.", "其中的名称：%s。", strings.Join(found, ", ")))
	}
	return append(out, "", "")
}

func (s *source) writeOverview() []string {
	facts := readFacts(s.posting)
	out := []string{s.say("- Position: **%s**", "- 职位：**%s**", strings.Join(facts.head, s.say(", ", "，")))}
	if d := texts(s.posting, duties); len(d) > 0 {
		out = append(out, s.say("- %d duties, the first: %s", "- 职责共 %d 条，首条：%s", len(d), d[0]))
	}
	required := slices.Concat(s.where(true), s.where(false))
	return append(out, s.say("- Required (%d): %s", "- 要求 %d 项：%s", len(required), s.list(required, 20)))
}

// writePoints writes an item for each point, with a marker line before it if the prompt shows one.
func (s *source) writePoints() []string {
	var out []string
	for _, p := range s.points {
		if strings.Contains(s.system, "<<point ") {
			mark, _ := json.Marshal(struct { // strings and a bool always marshal
				Requirement string `json:"requirement"`
				Matched     bool   `json:"matched"`
				Evidence    string `json:"evidence"`
			}{p.term, p.matched, p.found.text})
			out = append(out, "<<point "+string(mark)+">>")
		}
		term := "**" + p.term + "**"
		if p.optional {
			term += s.say(" (nice to have)", "（加分项）")
		}
		switch {
		case p.matched:
			out = append(out, s.say("- ✅ %s: “%s”", "- ✅ %s：“%s”", term, p.found.text))
		case p.hint != "":
			out = append(out, s.say("- ❌ %s: not in this résumé; a stored text says: “%s”", "- ❌ %s：本简历未提及；已存文本写有：“%s”", term, p.hint))
		default:
			out = append(out, s.say("- ❌ %s: no passage in the résumé", "- ❌ %s：简历中没有依据", term))
		}
	}
	if len(out) == 0 {
		return []string{s.say("No requirements found in the posting.", "未能从招聘信息中识别出要求。")}
	}
	return out
}

func (s *source) writeScore() []string {
	required := slices.Concat(s.where(true), s.where(false))
	optional := slices.DeleteFunc(slices.Clone(s.points), func(p point) bool { return !p.optional })
	percent, of := score(required)
	out := []string{s.say("- Required: **%d**/100, %s with a passage", "- 硬性要求：**%d**/100，%s 有依据", percent, of)}
	if len(optional) > 0 {
		n, of := score(optional)
		out = append(out, s.say("- Nice to have: **%d**/100, %s with a passage", "- 加分项：**%d**/100，%s 有依据", n, of))
	}
	return append(out, "", s.say("**Overall: %d/100**", "**总分：%d/100**", percent), "",
		s.say("Suggestions for the résumé:", "简历修改建议："),
		s.say("1. Put %s at the top, in the words of the posting.", "1. 把 %s 放在最前面，并使用招聘信息的用词。", s.list(s.where(true), 3)),
		s.say("2. Describe experience with %s if there is any; do not claim it otherwise.", "2. 若确有 %s 的经验请写明；若没有，不要声称具备。", s.list(s.where(false), 6)),
		s.say("3. Add figures to results.", "3. 为成果补充数字。"))
}

func (s *source) writeVerdict() []string {
	percent, _ := score(slices.Concat(s.where(true), s.where(false)))
	verdict := s.say("A long shot: most requirements have no passage in the résumé.", "把握不大：多数要求在简历中没有依据。")
	switch {
	case percent >= 75:
		verdict = s.say("Apply: the résumé covers most requirements.", "建议投递：简历能证明大部分要求。")
	case percent >= 45:
		verdict = s.say("Apply after a revision: part of the requirements have no passage.", "建议修改后投递：部分要求没有依据。")
	}
	return []string{verdict + s.say(" Stress %s. Prepare for questions about %s.", "重点突出：%s。准备回答关于 %s 的提问。",
		s.list(s.where(true), 4), s.list(s.where(false), 4))}
}

func (s *source) writeGaps() []string {
	var out []string
	for _, p := range s.where(false) {
		out = append(out, s.say("- **%s**: not in the résumé. Name the closest experience, and how you would learn it.",
			"- **%s**：简历没有体现。说出最接近的经验和学习计划。", p.term))
	}
	return append(out, s.say("- Every other requirement has a passage.", "- 其他要求都有依据。"))
}

func (s *source) writeQuestions() []string {
	var out []string
	for _, p := range s.points {
		switch n := len(out) + 1; {
		case n > 10:
		case p.matched:
			out = append(out, s.say("%d. The posting asks for “%s”. Which work of yours shows it?\n   - Start from the résumé: “%s”.",
				"%d. 招聘信息要求“%s”，你的哪段经历能够体现？\n   - 从简历原文说起：“%s”。", n, p.term, p.found.text))
		default:
			out = append(out, s.say("%d. What do you know about %s?\n   - The résumé does not mention it: be honest.",
				"%d. 你对 %s 了解多少？\n   - 简历没有提到：如实回答。", n, p.term))
		}
	}
	return out
}

func (s *source) writeAskBack() []string {
	var out []string
	for _, d := range append(texts(s.posting, duties), texts(s.posting, requirements)...) {
		if len(out) < 5 {
			out = append(out, s.say("- What does “%s” mean in the first three months?", "- 入职前三个月，“%s”具体做什么？", strings.TrimRight(d, ".。")))
		}
	}
	return out
}

func (s *source) writeIntroduction() []string {
	facts := readFacts(s.profile)
	parts := append([]string{s.say("My name is %s.", "我叫%s。", strings.Join(facts.head[:min(1, len(facts.head))], ""))}, texts(s.profile, about)...)
	for _, l := range s.profile {
		if l.topic == experience && l.bullet && len(parts) < 5 {
			parts = append(parts, l.text)
		}
	}
	return []string{strings.Join(append(parts, s.say("For this position: %s.", "与该职位相关：%s。", s.list(s.where(true), 6))), s.say(" ", ""))}
}
