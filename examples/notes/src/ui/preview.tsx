import { useEffect, useRef } from 'preact/hooks'
import type { Library } from '../notes/library.ts'
import { CODE_LANGUAGE, htmlOf, PICTURE_ATTRIBUTE, TASK_ATTRIBUTE } from '../notes/markdown.ts'
import { useServices, useWatched } from './services.ts'

/** The pause in typing after which the formatted note follows, in milliseconds. */
const PAUSE_MS = 150

interface PreviewProps {
  readonly body: string
  /** Whether it scrolls for itself, so that the keyboard must reach it. */
  readonly isScroller: boolean
  /**
   * Ticks a task; absent: tasks cannot be ticked.
   * @param shown whether each task that is shown is done
   */
  readonly onTick?: (shown: readonly boolean[], index: number) => void
}

/** A note as formatted text. */
export function Preview({ body, isScroller, onTick }: PreviewProps) {
  const { library } = useServices()
  const { pictures } = useWatched(library)
  // Rendered again only when its pictures change, because the user may have selected some text.
  const here = [...pictures.keys()].filter((id) => body.includes(id)).join(' ')
  const sheet = useRef<HTMLDivElement>(null)
  const shown = useRef({ body: '', at: 0, urls: new Map<string, string>() })
  useEffect(() => {
    const page = sheet.current
    if (page === null) return undefined
    let end = () => {}
    const draw = () => {
      shown.current.at = performance.now()
      end = drawNote(page, body, { library, here: new Set(here.split(' ')), urls: shown.current.urls })
    }
    const wait = shown.current.at === 0 ? 0 : shown.current.at + PAUSE_MS - performance.now()
    if (wait <= 0) draw()
    const timer = wait > 0 ? setTimeout(draw, PAUSE_MS) : undefined
    return () => {
      clearTimeout(timer)
      end()
    }
  }, [body, library, here])
  useEffect(
    () => () => {
      for (const url of shown.current.urls.values()) URL.revokeObjectURL(url)
    },
    [],
  )
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: the clicks are those of the checkboxes in it
    // biome-ignore lint/a11y/useKeyWithClickEvents: a checkbox makes a click of the space bar itself
    <div
      class={`preview${onTick === undefined ? ' is-fixed' : ''}`}
      ref={sheet}
      tabIndex={isScroller ? 0 : -1}
      onClick={(event) => {
        const box = event.target
        if (!(box instanceof HTMLInputElement) || !box.hasAttribute(TASK_ATTRIBUTE)) return
        event.preventDefault()
        const boxes = [...event.currentTarget.querySelectorAll<HTMLInputElement>(`[${TASK_ATTRIBUTE}]`)]
        onTick?.(
          boxes.map((each) => each.hasAttribute('checked')),
          boxes.indexOf(box),
        )
      }}
    />
  )
}

interface Pictures {
  readonly library: Library
  /** The pictures that are on this device. */
  readonly here: ReadonlySet<string>
  /** The addresses of those that were shown before. */
  readonly urls: Map<string, string>
}

/** @returns a function that ends what is under way */
function drawNote(page: HTMLElement, body: string, pictures: Pictures): () => void {
  const focused = document.activeElement?.getAttribute(TASK_ATTRIBUTE)
  const hadFocus = page.contains(document.activeElement)
  page.innerHTML = htmlOf(body)
  for (const box of page.querySelectorAll(`[${TASK_ATTRIBUTE}]`)) {
    box.setAttribute('aria-label', box.closest('li')?.textContent?.trim().slice(0, 100) || 'Task')
  }
  // The box that was ticked has been replaced.
  if (hadFocus && focused) page.querySelector<HTMLElement>(`[${TASK_ATTRIBUTE}="${focused}"]`)?.focus()
  for (const wide of page.querySelectorAll<HTMLElement>('pre, table')) {
    if (wide.scrollWidth > wide.clientWidth) wide.tabIndex = 0
  }
  if (page.querySelector(`code[${CODE_LANGUAGE}]:not([${CODE_LANGUAGE}=""])`) !== null) {
    void import('../writing/highlight.ts').then(
      ({ highlightAll }) => highlightAll(page),
      // Without it the code is plain.
      () => undefined,
    )
  }
  return showPictures(page, pictures)
}

function showPictures(page: HTMLElement, { library, here, urls }: Pictures): () => void {
  let isGone = false
  for (const image of page.querySelectorAll<HTMLImageElement>(`img[${PICTURE_ATTRIBUTE}]`)) {
    const id = image.getAttribute(PICTURE_ATTRIBUTE) ?? ''
    if (!here.has(id)) {
      image.replaceWith(missing(image.alt))
      continue
    }
    const known = urls.get(id)
    if (known !== undefined) {
      image.src = known
      continue
    }
    void library.pictureContent(id).then(
      (content) => {
        if (isGone) return
        // Content of another type, opened by itself, would be a page of this origin.
        if (!content.type.startsWith('image/')) {
          image.replaceWith(missing(image.alt))
          return
        }
        const url = urls.get(id) ?? URL.createObjectURL(content)
        urls.set(id, url)
        image.src = url
      },
      () => image.replaceWith(missing(image.alt)),
    )
  }
  return () => {
    isGone = true
  }
}

function missing(name: string): HTMLElement {
  const place = document.createElement('span')
  place.className = 'no-picture'
  place.textContent = `${name === '' ? 'A picture' : name}: not on this device`
  return place
}
