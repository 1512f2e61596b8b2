/** Pictures that the user adds to a note. */
import { useState } from 'preact/hooks'
import { useServices, useWatched } from './services.ts'

interface AddingPictures {
  /** Whether the place where the notes are synced takes pictures. */
  readonly isOffered: boolean
  /** Why the last one was not added; empty: it was. */
  readonly fault: string
  readonly add: (files: readonly File[]) => Promise<void>
}

/** @param insert puts a picture's Markdown into the text */
export function usePictures(insert: (block: string) => void): AddingPictures {
  const { library, settings, hostedServer } = useServices()
  const { mode, account } = useWatched(settings)
  const [fault, setFault] = useState('')
  const isOffered = mode !== 'hosted' || account === null || account.server !== hostedServer
  const add = async (files: readonly File[]) => {
    setFault(isOffered ? '' : 'The hosted server accepts no pictures, so this one was not added.')
    if (!isOffered) return
    for (const file of files) {
      try {
        const { id, name } = await library.addPicture(file)
        insert(`![${name.replace(/[[\]]/g, '')}](${id})`)
      } catch (error) {
        setFault(error instanceof Error ? error.message : 'The picture cannot be added.')
      }
    }
  }
  return { isOffered, fault, add }
}
