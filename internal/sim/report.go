package sim

import (
	"encoding/json"
	"fmt"
	"strings"

	"berth"
)

// The Markdown answers of the stream templates.

// matchText is a match in the four stages of the prompt, with one point marker for each requirement (T10).
func matchText(m match, l berth.Locale) string {
	var b strings.Builder
	stage := func(s berth.Stage, en, zh string) {
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "<<stage:%s>>\n## %s\n\n", s, say(l, en, zh))
	}
	stage(berth.StageIngest, "What the posting is about", "岗位概要")
	writeIngest(&b, m, l)
	stage(berth.StageCompare, "Requirement by requirement", "逐条对照")
	for _, f := range m.required {
		writePoint(&b, f, l, "")
	}
	for _, f := range m.preferred {
		remark := say(l, " (nice to have)", "（加分项）")
		if f.requirement.duty {
			remark = say(l, " (named in the duties)", "（职责中提到）")
		}
		writePoint(&b, f, l, remark)
	}
	if len(m.required)+len(m.preferred) == 0 {
		b.WriteString(say(l, "No requirement was recognised in the posting.\n", "未能从招聘信息中识别出要求。\n"))
	}
	stage(berth.StageScore, "Score", "评分")
	writeScore(&b, m, l)
	stage(berth.StageDeliver, "Verdict", "结论")
	writeVerdict(&b, m, l)
	return strings.TrimRight(b.String(), "\n") + "\n"
}

func writeIngest(b *strings.Builder, m match, l berth.Locale) {
	p := m.posting
	title := p.title
	if title == "" {
		title = say(l, "not named", "未写明")
	}
	fmt.Fprintf(b, say(l, "- Position: **%s**", "- 职位：**%s**"), title)
	if p.company != "" {
		fmt.Fprintf(b, say(l, ", %s", "，%s"), p.company)
	}
	if p.location != "" {
		fmt.Fprintf(b, say(l, ", %s", "，%s"), p.location)
	}
	b.WriteByte('\n')
	if len(p.responsibilities) > 0 {
		fmt.Fprintf(b, say(l, "- Duties: %d, the first: %s\n", "- 职责：共 %d 条，首条：%s\n"),
			len(p.responsibilities), p.responsibilities[0])
	}
	fmt.Fprintf(b, say(l, "- Insists on (%d): %s\n", "- 硬性要求 %d 项：%s\n"), len(m.required), nameList(m.required, l))
	fmt.Fprintf(b, "\n_%s_\n", notice(l))
}

func writePoint(b *strings.Builder, f finding, l berth.Locale, remark string) {
	point, err := json.Marshal(berth.MatchPoint{Requirement: f.name(l), Matched: f.matched, Evidence: f.evidence})
	if err != nil {
		return // strings and a bool always marshal
	}
	// The prompt wants the evidence written even when it is empty.
	if f.evidence == "" {
		point = append(point[:len(point)-1], `,"evidence":""}`...)
	}
	fmt.Fprintf(b, "<<point %s>>\n", point)
	switch {
	case f.matched:
		fmt.Fprintf(b, say(l, "- ✅ **%s**%s: “%s”\n", "- ✅ **%s**%s：“%s”\n"), f.name(l), remark, f.evidence)
	case f.hint != "":
		fmt.Fprintf(b, say(l, "- ❌ **%s**%s: not in this résumé, but a stored text says: “%s”\n",
			"- ❌ **%s**%s：本简历未提及，但已存文本中写有：“%s”\n"), f.name(l), remark, f.hint)
	default:
		fmt.Fprintf(b, say(l, "- ❌ **%s**%s: no proof in the résumé\n", "- ❌ **%s**%s：简历中没有依据\n"), f.name(l), remark)
	}
}

func writeScore(b *strings.Builder, m match, l berth.Locale) {
	groups := []struct {
		en, zh string
		of     func(finding) bool
	}{
		{"Hard skills", "硬技能", finding.hard},
		{"Soft skills", "软技能", finding.soft},
		{"Experience", "经验匹配度", func(f finding) bool { return !f.hard() && !f.soft() }},
	}
	for _, g := range groups {
		var fs []finding
		for _, f := range m.required {
			if g.of(f) {
				fs = append(fs, f)
			}
		}
		if len(fs) == 0 {
			fmt.Fprintf(b, say(l, "- %s: not asked for\n", "- %s：未作要求\n"), say(l, g.en, g.zh))
			continue
		}
		fmt.Fprintf(b, say(l, "- %s: **%d**/100, %d of %d requirements have proof\n", "- %s：**%d**/100，%d / %d 条要求有依据\n"),
			say(l, g.en, g.zh), score(fs), len(matchedOf(fs)), len(fs))
	}
	fmt.Fprintf(b, say(l, "\n**Overall: %d/100** (%d of %d required, %d of %d beyond that)\n\n",
		"\n**总分：%d/100**（硬性要求 %d / %d，其他 %d / %d）\n\n"),
		score(m.required), len(matchedOf(m.required)), len(m.required), len(matchedOf(m.preferred)), len(m.preferred))
	b.WriteString(say(l, "Suggestions for the résumé:\n", "简历修改建议：\n"))
	for i, s := range suggestions(m, l) {
		fmt.Fprintf(b, "%d. %s\n", i+1, s)
	}
}

// suggestions are three to five changes, each from what was found.
func suggestions(m match, l berth.Locale) []string {
	var out []string
	if listed := onlyListed(m); len(listed) > 0 {
		out = append(out, fmt.Sprintf(say(l, "%s: so far only listed; add where it was used and what came of it.",
			"%s：目前只列在技能中，请补充使用场景和成果。"), nameList(listed, l)))
	}
	if missing := missingOf(m.required); len(missing) > 0 {
		out = append(out, fmt.Sprintf(say(l, "If there is experience with %s, write it down; if not, do not claim it.",
			"若确有 %s 的经验请写明；若没有，不要声称具备。"), nameList(missing, l)))
	}
	if matched := matchedOf(m.required); len(matched) > 0 {
		out = append(out, fmt.Sprintf(say(l, "Put %s at the top, in the posting's own words.", "把 %s 放在最前面，并使用招聘信息的用词。"),
			nameList(matched[:min(len(matched), 3)], l)))
	}
	if bonus := matchedOf(m.preferred); len(bonus) > 0 {
		out = append(out, fmt.Sprintf(say(l, "Mention %s: the posting names it beside the requirements.", "提及 %s：招聘信息在硬性要求之外也有提到。"), nameList(bonus, l)))
	}
	out = append(out, say(l, "Give figures for results wherever there are some.", "凡有成果，尽量写出数字。"))
	if m.posting.title != "" && !strings.EqualFold(m.posting.title, m.resume.headline) {
		out = append(out, fmt.Sprintf(say(l, "Name the position you aim at: %s.", "写明求职意向：%s。"), m.posting.title))
	}
	if len(out) < 3 {
		out = append(out, say(l, "Keep it to two pages.", "篇幅控制在两页以内。"))
	}
	return out[:min(len(out), 5)]
}

// onlyListed are the met requirements whose best proof is a line of a skills list.
func onlyListed(m match) []finding {
	var out []finding
	for _, f := range matchedOf(m.required) {
		for _, ln := range m.resume.lines {
			if len(f.met) > 0 && ln.text == f.evidence {
				if ln.section == secSkills {
					out = append(out, f)
				}
				break
			}
		}
	}
	return out
}

func writeVerdict(b *strings.Builder, m match, l berth.Locale) {
	n := score(m.required)
	switch {
	case len(m.required) == 0:
		b.WriteString(say(l, "Without recognised requirements there is no advice to give.", "未识别出要求，无法给出建议。"))
	case n >= 75:
		b.WriteString(say(l, "Apply: the résumé proves most of what is asked.", "建议投递：简历能证明大部分要求。"))
	case n >= 45:
		b.WriteString(say(l, "Apply after a revision: an important part is proven, some is not.", "建议修改后投递：重要部分有依据，仍有缺口。"))
	default:
		b.WriteString(say(l, "A long shot: most of what is asked has no proof in the résumé.", "把握不大：多数要求在简历中没有依据。"))
	}
	if hard := matchedOf(m.required); len(hard) > 0 {
		fmt.Fprintf(b, say(l, " Stress %s.", "重点突出：%s。"), nameList(hard[:min(len(hard), 4)], l))
	}
	if missing := missingOf(m.required); len(missing) > 0 {
		fmt.Fprintf(b, say(l, " Be ready to be asked about %s.", "准备回答关于 %s 的提问。"), nameList(missing, l))
	}
	b.WriteByte('\n')
}

// interviewText is a preparation for the interview in the five parts of the prompt.
func interviewText(m match, l berth.Locale) string {
	var b strings.Builder
	fmt.Fprintf(&b, "_%s_\n\n## %s\n\n", notice(l), say(l, "1. What this employer will look for", "1. 雇主看重什么"))
	looked := append(append([]finding{}, m.required...), m.preferred...)
	for _, f := range looked[:min(len(looked), 5)] {
		fmt.Fprintf(&b, "- **%s**", f.requirement.name(l))
		if f.requirement.text != f.requirement.name(l) {
			b.WriteString(say(l, ": ", "：") + f.requirement.text)
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "\n## %s\n\n", say(l, "2. Likely questions", "2. 可能的问题"))
	for i, q := range questions(m, l) {
		fmt.Fprintf(&b, "%d. %s\n", i+1, q)
	}
	fmt.Fprintf(&b, "\n## %s\n\n", say(l, "3. Weak spots", "3. 薄弱之处"))
	missing := missingOf(m.required)
	for _, f := range missing {
		fmt.Fprintf(&b, say(l, "- **%s**: the résumé does not show it. Say so, and tell what comes closest and how you would learn it.\n",
			"- **%s**：简历没有体现。如实说明，并讲出最接近的经验和学习计划。\n"), f.name(l))
	}
	if len(missing) == 0 {
		b.WriteString(say(l, "- Every requirement that was recognised has proof.\n", "- 已识别的要求都有依据。\n"))
	}
	fmt.Fprintf(&b, "\n## %s\n\n", say(l, "4. Questions to ask back", "4. 可以反问的问题"))
	for _, q := range askBack(m, l) {
		fmt.Fprintf(&b, "- %s\n", q)
	}
	fmt.Fprintf(&b, "\n## %s\n\n%s\n", say(l, "5. Introduction", "5. 自我介绍"), introduction(m, l))
	return b.String()
}

// questions are up to ten: what the posting asks and the résumé proves, what it asks and the résumé lacks, and
// the positions held.
func questions(m match, l berth.Locale) []string {
	var out []string
	for _, f := range append(matchedOf(m.required), matchedOf(m.preferred)...) {
		if len(f.met) == 0 || len(out) == 5 {
			continue
		}
		out = append(out, fmt.Sprintf(say(l,
			"How have you used %s, and what came of it?\n   - Start from what the résumé says: “%s”. Tell the situation, your task, what you did, the result.",
			"你如何使用 %s，取得了什么成果？\n   - 从简历原文说起：“%s”，依次讲情境、任务、行动、结果。"), f.name(l), f.evidence))
	}
	for _, f := range missingOf(m.required) {
		if len(out) == 8 {
			break
		}
		out = append(out, fmt.Sprintf(say(l,
			"The position needs “%s”. What do you know about it?\n   - The résumé does not mention it: be honest, and name the nearest thing you did.",
			"该职位要求“%s”，你了解多少？\n   - 简历没有提到：如实回答，并说出最接近的经历。"), f.name(l)))
	}
	for _, ro := range m.resume.roles {
		if len(out) == 10 || len(ro.bullets) == 0 {
			break
		}
		where := ro.title
		if ro.organisation != "" {
			where += say(l, ", ", "，") + ro.organisation
		}
		out = append(out, fmt.Sprintf(say(l, "What was hardest in your time as %s?\n   - You could use: “%s”.",
			"在“%s”期间最难的是什么？\n   - 可以讲：“%s”。"), where, ro.bullets[0]))
	}
	return out
}

func askBack(m match, l berth.Locale) []string {
	duty := say(l, "the first project", "第一个项目")
	if len(m.posting.responsibilities) > 0 {
		duty = "“" + m.posting.responsibilities[0] + "”"
	}
	skill := say(l, "the main tools", "主要技术")
	if len(m.posting.skills) > 0 {
		skill = m.posting.skills[0].name(l)
	}
	return []string{
		fmt.Sprintf(say(l, "What does %s look like in the first three months?", "入职前三个月，%s 具体做什么？"), duty),
		fmt.Sprintf(say(l, "How does the team use %s today, and what should change?", "团队目前如何使用 %s，希望改变什么？"), skill),
		say(l, "How is it decided what is built next?", "接下来做什么由谁决定？"),
		say(l, "What happens when something fails at night?", "夜间出现故障时如何处理？"),
		say(l, "How will you know after a year that the choice was right?", "一年后如何判断这次招聘是成功的？"),
	}
}

func introduction(m match, l berth.Locale) string {
	r := m.resume
	var parts []string
	if r.name != "" {
		parts = append(parts, fmt.Sprintf(say(l, "My name is %s.", "我叫%s。"), r.name))
	}
	if r.years > 0 {
		parts = append(parts, fmt.Sprintf(say(l, "I have about %d years of experience.", "我有约 %d 年经验。"), r.years))
	}
	if len(r.roles) > 0 {
		where := r.roles[0].title
		if r.roles[0].organisation != "" {
			where += say(l, " at ", "，") + r.roles[0].organisation
		}
		parts = append(parts, fmt.Sprintf(say(l, "Most recently I was %s.", "最近的经历是：%s。"), where))
		if len(r.roles[0].bullets) > 0 {
			parts = append(parts, fmt.Sprintf(say(l, "There: %s", "其中：%s"), r.roles[0].bullets[0]))
		}
	}
	if met := matchedOf(m.required); len(met) > 0 {
		parts = append(parts, fmt.Sprintf(say(l, "What I bring for this position: %s.", "与该职位相关：%s。"), nameList(met, l)))
	}
	return strings.Join(parts, say(l, " ", ""))
}

func nameList(fs []finding, l berth.Locale) string {
	if len(fs) == 0 {
		return say(l, "none", "无")
	}
	names := make([]string, len(fs))
	for i, f := range fs {
		names[i] = f.name(l)
	}
	return strings.Join(names, say(l, ", ", "、"))
}
