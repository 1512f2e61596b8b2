import { useEffect, useMemo, useRef } from 'preact/hooks'
import type { Library } from '../notes/library.ts'
import { htmlOf, PICTURE_ATTRIBUTE } from '../notes/markdown.ts'
import { useServices, useWatched } from './services.ts'

/** A note as formatted text. */
export function Preview({ body }: { readonly body: string }) {
  const { library } = useServices()
  const { pictures } = useWatched(library)
  const html = useMemo(() => htmlOf(body), [body])
  // Rendered again only when its pictures change, because the user may have selected some text.
  const here = [...pictures.keys()].filter((id) => body.includes(id)).join(' ')
  const sheet = useRef<HTMLDivElement>(null)
  useEffect(() => {
    const page = sheet.current
    if (page === null) return undefined
    page.innerHTML = html
    return showPictures(page, library, new Set(here.split(' ')))
  }, [html, library, here])
  return <div class="preview" ref={sheet} />
}

/** @returns a function that frees the memory of the pictures */
function showPictures(page: HTMLElement, library: Library, here: ReadonlySet<string>): () => void {
  const urls: string[] = []
  let isGone = false
  for (const image of page.querySelectorAll<HTMLImageElement>(`img[${PICTURE_ATTRIBUTE}]`)) {
    const id = image.getAttribute(PICTURE_ATTRIBUTE) ?? ''
    if (!here.has(id)) {
      image.replaceWith(missing(image.alt))
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
        const url = URL.createObjectURL(content)
        urls.push(url)
        image.src = url
      },
      () => image.replaceWith(missing(image.alt)),
    )
  }
  return () => {
    isGone = true
    for (const url of urls) URL.revokeObjectURL(url)
  }
}

function missing(name: string): HTMLElement {
  const place = document.createElement('span')
  place.className = 'no-picture'
  place.textContent = `${name === '' ? 'A picture' : name}: not on this device`
  return place
}
