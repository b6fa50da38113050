"""Writes the files of the page as a C++ source: embed_page.py FILE... > page_files.cc"""

import pathlib
import sys

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
BYTES_PER_LINE = 24


def main():
    files = [pathlib.Path(name) for name in sys.argv[1:]]
    print('#include "daemon/serve/web/page_files.h"\n\nnamespace stackd {\nnamespace {\n')
    for index, file in enumerate(files):
        data = file.read_bytes()
        print(f"constexpr unsigned char kFile{index}[] = {{")
        for start in range(0, len(data), BYTES_PER_LINE):
            print(",".join(str(byte) for byte in data[start : start + BYTES_PER_LINE]) + ",")
        print("};")
    print("\nstd::string_view Text(const unsigned char* bytes, size_t size) {")
    print("  return {reinterpret_cast<const char*>(bytes), size};\n}\n\nconst PageFile kFiles[] = {")
    for index, file in enumerate(files):
        path = "/" if file.name == "index.html" else "/" + file.name
        print(f'    {{"{path}", "{TYPES[file.suffix]}", Text(kFile{index}, sizeof(kFile{index}))}},')
    print("};\n\n}  // namespace\n\nstd::span<const PageFile> PageFiles() { return kFiles; }\n\n}  // namespace stackd")


if __name__ == "__main__":
    main()
