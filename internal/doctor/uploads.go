package doctor

import (
	"context"
	_ "embed" // the samples
	"errors"
	"strings"

	"berth/internal/extract"
	"berth/internal/ocr"
)

// The samples contain sampleWord, whose characters need the data of the tools.
var (
	//go:embed samples/sample.pdf
	samplePDF []byte
	//go:embed samples/sample.png
	samplePNG []byte
)

const (
	sampleWord = "工程师"
	// readerPackages and simulatorPackages are the advice if a sample is not read.
	readerPackages    = "apt-get install poppler-utils poppler-data"
	simulatorPackages = "apt-get install tesseract-ocr tesseract-ocr-eng tesseract-ocr-chi-sim"
)

// uploads reads a small PDF and a small image with Chinese characters, because a tool without its data omits what it cannot read.
func (d *doctor) uploads(ctx context.Context) {
	const subject = "uploads"
	text, err := extract.NewReader(d.pdfToText).Text(ctx, extract.Detect(samplePDF, ""), samplePDF, len(samplePDF))
	switch {
	case errors.Is(err, extract.ErrNoTool):
		d.add(Warning, subject, readerPackages, "PDF files are refused: %s", err)
	case err != nil, !strings.Contains(text, sampleWord):
		d.add(Warning, subject, readerPackages, "PDF files with Chinese, Japanese or Korean characters are not read: %q, %v", text, err)
	default:
		d.add(OK, subject, "", "PDF files are read")
	}
	text, err = ocr.Tesseract(d.tesseract, checkTimeout, 1)(ctx, samplePNG)
	if err != nil || !strings.Contains(text, sampleWord) {
		d.add(Warning, subject, simulatorPackages, "the model simulator does not read images, which matters in development only: %q, %v", text, err)
		return
	}
	d.add(OK, subject, "", "the model simulator reads images")
}
