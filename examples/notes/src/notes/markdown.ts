/** Turns Markdown into safe HTML. No script in a note runs, and nothing is loaded from other servers. */
import DOMPurify from 'dompurify'
import { Marked, type Tokens } from 'marked'

/** Marks a picture that is a separate document; its address is set when its content has been read. */
export const PICTURE_ATTRIBUTE = 'data-picture'
/** Marks a task's box with its place among the tasks of the note. */
export const TASK_ATTRIBUTE = 'data-task'
/** The language of a code block. */
export const CODE_LANGUAGE = 'data-language'

/** Tasks of the text that is being formatted. */
let tasks = 0

const marked = new Marked({
  gfm: true,
  breaks: true,
  renderer: {
    image: ({ href, text }: Tokens.Image) => {
      if (href.startsWith('file:'))
        return `<img ${PICTURE_ATTRIBUTE}="${escaped(href)}" alt="${escaped(text)}">`
      // The server of an external picture would learn when the note is read, so it becomes a link.
      return `<a href="${escaped(href)}">${escaped(text === '' ? href : text)}</a>`
    },
    checkbox: ({ checked }: Tokens.Checkbox) =>
      `<input type="checkbox" ${TASK_ATTRIBUTE}="${tasks++}"${checked ? ' checked' : ''}>`,
    code: ({ text, lang = '' }: Tokens.Code) =>
      `<pre><code ${CODE_LANGUAGE}="${escaped(lang)}">${escaped(text)}</code></pre>`,
  },
})

function escaped(text: string): string {
  return text.replace(/[&<>"']/g, (each) => `&#${each.charCodeAt(0)};`)
}

DOMPurify.addHook('afterSanitizeAttributes', (node) => {
  if (node.nodeName === 'A') {
    node.setAttribute('target', '_blank')
    node.setAttribute('rel', 'noopener noreferrer')
  }
  if (node.nodeName === 'INPUT') tickBox(node)
  if (node.nodeName === 'IMG' && !node.hasAttribute(PICTURE_ATTRIBUTE)) node.remove()
})

/** The checkbox of a task list gets a label. Other inputs are removed: they could ask for a password. */
function tickBox(node: Element): void {
  if (node.getAttribute('type') !== 'checkbox') {
    node.remove()
    return
  }
  if (!node.hasAttribute(TASK_ATTRIBUTE)) node.setAttribute('disabled', '')
  node.setAttribute('aria-label', 'Done')
}

/** The elements that Markdown makes, and a few more that people use. Classes and ids are reserved for the app. */
const TAGS = [
  ...['h1', 'h2', 'h3', 'h4', 'h5', 'h6', 'p', 'br', 'hr', 'blockquote', 'pre', 'ul', 'ol', 'li', 'input'],
  ...['dl', 'dt', 'dd', 'details', 'summary', 'table', 'thead', 'tbody', 'tfoot', 'tr', 'th', 'td'],
  ...[
    'a',
    'img',
    'em',
    'strong',
    'i',
    'b',
    'u',
    's',
    'del',
    'ins',
    'mark',
    'code',
    'kbd',
    'samp',
    'sub',
    'sup',
  ],
  ...['small', 'abbr', 'cite', 'q'],
]
const ATTRIBUTES = ['href', 'title', 'alt', 'type', 'checked', 'start', 'align', 'colspan', 'rowspan']

/** @returns HTML that is safe to insert into the page */
export function htmlOf(markdown: string): string {
  tasks = 0
  return DOMPurify.sanitize(marked.parse(markdown, { async: false }), {
    ALLOWED_TAGS: TAGS,
    ALLOWED_ATTR: [...ATTRIBUTES, PICTURE_ATTRIBUTE, TASK_ATTRIBUTE, CODE_LANGUAGE],
    // The id of a document is not an address that a link may have.
    ADD_URI_SAFE_ATTR: [PICTURE_ATTRIBUTE, CODE_LANGUAGE],
    ALLOW_DATA_ATTR: false,
    ALLOW_ARIA_ATTR: false,
  })
}
