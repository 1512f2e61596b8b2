/** Markdown as a page may show it. Whatever is in a note, nothing of it runs, and nothing is loaded from elsewhere. */
import DOMPurify from 'dompurify'
import { Marked, type Tokens } from 'marked'

/** Marks a picture that is a document of its own; its address is put in when its content has been read. */
export const PICTURE_ATTRIBUTE = 'data-picture'

const marked = new Marked({
  gfm: true,
  breaks: true,
  renderer: {
    image: ({ href, text }: Tokens.Image) => {
      if (href.startsWith('file:'))
        return `<img ${PICTURE_ATTRIBUTE}="${escaped(href)}" alt="${escaped(text)}">`
      // Whoever serves a picture of elsewhere would learn when the note is read: it is a link until somebody wants it.
      return `<a href="${escaped(href)}">${escaped(text === '' ? href : text)}</a>`
    },
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

/** What a list ticks off, which has no words of its own. A field of another kind could ask for a password. */
function tickBox(node: Element): void {
  if (node.getAttribute('type') !== 'checkbox') {
    node.remove()
    return
  }
  node.setAttribute('disabled', '')
  node.setAttribute('aria-label', node.hasAttribute('checked') ? 'Done' : 'To do')
}

/** What Markdown makes, and a little more that people write in it. Without classes and ids: they are the app's own. */
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

/** @returns HTML that is safe to be put into the page */
export function htmlOf(markdown: string): string {
  return DOMPurify.sanitize(marked.parse(markdown, { async: false }), {
    ALLOWED_TAGS: TAGS,
    ALLOWED_ATTR: [...ATTRIBUTES, PICTURE_ATTRIBUTE],
    // An id of a document is no address that anybody follows.
    ADD_URI_SAFE_ATTR: [PICTURE_ATTRIBUTE],
    ALLOW_DATA_ATTR: false,
    ALLOW_ARIA_ATTR: false,
  })
}
