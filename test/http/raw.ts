/** Requests written byte by byte. */
import { connect } from 'node:net'

/** Says something over a socket and listens until it is closed. */
export function speak(url: string, words: string | Buffer): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect(Number(new URL(url).port), '127.0.0.1', () => socket.write(words))
    const heard: Buffer[] = []
    socket.on('data', (chunk) => heard.push(chunk))
    socket.on('error', () => {})
    socket.on('close', () => resolve(Buffer.concat(heard).toString('latin1')))
  })
}
