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
  // What a list ticks off; it has no words of its own.
  if (node.nodeName === 'INPUT')
    node.setAttribute('aria-label', node.hasAttribute('checked') ? 'Done' : 'To do')
  if (node.nodeName === 'IMG' && !node.hasAttribute(PICTURE_ATTRIBUTE)) node.remove()
})

/** @returns HTML that is safe to be put into the page */
export function htmlOf(markdown: string): string {
  return DOMPurify.sanitize(marked.parse(markdown, { async: false }), {
    USE_PROFILES: { html: true },
    FORBID_TAGS: [
      'style',
      'form',
      'button',
      'textarea',
      'select',
      'video',
      'audio',
      'source',
      'picture',
      'svg',
    ],
    FORBID_ATTR: ['style', 'srcset', 'background', 'poster'],
    ALLOW_DATA_ATTR: true,
  })
}
