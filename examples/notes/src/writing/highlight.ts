/** Colours the code of a note that is read. Loaded when a note has code in it. */
import { classHighlighter, highlightCode } from '@lezer/highlight'
import { CODE_LANGUAGE } from '../notes/markdown.ts'
import { languageOf } from './code-languages.ts'

/** Longer code stays plain, so that the page is not held up; in characters. */
const LONGEST = 50_000

/** Colours every code block with a known language. Languages that are loaded already take no further turn. */
export async function highlightAll(page: HTMLElement): Promise<void> {
  const blocks = [...page.querySelectorAll<HTMLElement>(`code[${CODE_LANGUAGE}]`)]
  await Promise.all(blocks.map(highlight))
}

async function highlight(block: HTMLElement): Promise<void> {
  const text = block.textContent ?? ''
  const found = languageOf(block.getAttribute(CODE_LANGUAGE) ?? '')
  if (found === null || text.length > LONGEST) return
  const { language } = found.support ?? (await found.load())
  const parts = document.createDocumentFragment()
  const put = (words: string, classes: string) => {
    if (classes === '') {
      parts.append(words)
      return
    }
    const span = document.createElement('span')
    span.className = classes
    span.append(words)
    parts.append(span)
  }
  highlightCode(text, language.parser.parse(text), classHighlighter, put, () => parts.append('\n'))
  block.replaceChildren(parts)
}
