#include "client/commands/commands.h"
#include "client/exit_code.h"
#include "client/output.h"

namespace stackd {
namespace {

// Names come from the daemon; without one there are none, and no message either.
constexpr char kBash[] = R"sh(_stackctl() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command=
  local word
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case $word in
      @COMMANDS_PATTERN@) command=$word; break ;;
    esac
  done
  case $prev in
    -o|--output) COMPREPLY=($(compgen -W "text json" -- "$cur")); return ;;
    -f|--format)
      local formats="text json folded"
      [[ $command == export ]] && formats+=" pprof speedscope minidump"
      COMPREPLY=($(compgen -W "$formats" -- "$cur")); return ;;
    --to) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    --since|--every|--timeout|--limit) COMPREPLY=(); return ;;
    --explain) COMPREPLY=($(compgen -W "$(stackctl groups 2>/dev/null | awk 'NR > 1 {print $4}')" -- "$cur")); return ;;
  esac
  case $command in
    "") COMPREPLY=($(compgen -W "@COMMANDS@ --address --timeout --output --help --version" -- "$cur")) ;;
    list) COMPREPLY=($(compgen -W "--crashes --hangs --filter --since --limit" -- "$cur")) ;;
    ps) COMPREPLY=($(compgen -W "--wide --watch --filter" -- "$cur")) ;;
    top) COMPREPLY=($(compgen -W "--once --every --filter" -- "$cur")) ;;
    explain) COMPREPLY=($(compgen -W "$(stackctl explain 2>/dev/null | awk 'NR > 1 {print $1}')" -- "$cur")) ;;
    help) COMPREPLY=($(compgen -W "@COMMANDS@" -- "$cur")) ;;
    dump|watch) COMPREPLY=($(compgen -W "$(stackctl ps 2>/dev/null | awk 'NR > 1 {print $2}')" -- "$cur")) ;;
    show|diff|export|resymbolize|delete) COMPREPLY=($(compgen -W "$(stackctl list 2>/dev/null | awk 'NR > 1 {print $NF}')" -- "$cur")) ;;
    groups) COMPREPLY=($(compgen -W "--explain --filter" -- "$cur")) ;;
    completion) COMPREPLY=($(compgen -W "bash zsh fish" -- "$cur")) ;;
  esac
}
complete -F _stackctl stackctl
)sh";

constexpr char kZsh[] = R"sh(#compdef stackctl
_stackctl() {
  local -a names
  if (( CURRENT == 2 )); then
    names=(@COMMANDS@)
  else
    case ${words[2]} in
      dump|watch) names=(${(f)"$(stackctl ps 2>/dev/null | awk 'NR > 1 {print $2}')"}) ;;
      list) names=(--crashes --hangs --filter --since --limit) ;;
      ps) names=(--wide --watch --filter) ;;
      top) names=(--once --every --filter) ;;
      explain) names=(${(f)"$(stackctl explain 2>/dev/null | awk 'NR > 1 {print $1}')"}) ;;
      help) names=(@COMMANDS@) ;;
      show|diff|export|resymbolize|delete) names=(${(f)"$(stackctl list 2>/dev/null | awk 'NR > 1 {print $NF}')"}) ;;
      groups)
        if [[ ${words[CURRENT-1]} == --explain ]]; then
          names=(${(f)"$(stackctl groups 2>/dev/null | awk 'NR > 1 {print $4}')"})
        else
          names=(--explain --filter)
        fi ;;
      completion) names=(bash zsh fish) ;;
    esac
  fi
  compadd -a names
}
compdef _stackctl stackctl
)sh";

constexpr char kFish[] = R"sh(complete -c stackctl -f
complete -c stackctl -n __fish_use_subcommand -a "@COMMANDS@"
complete -c stackctl -n "__fish_seen_subcommand_from dump watch" -a "(stackctl ps 2>/dev/null | awk 'NR > 1 {print \$2}')"
complete -c stackctl -n "__fish_seen_subcommand_from show diff export resymbolize delete" -a "(stackctl list 2>/dev/null | awk 'NR > 1 {print \$NF}')"
complete -c stackctl -n "__fish_seen_subcommand_from completion" -a "bash zsh fish"
complete -c stackctl -n "__fish_seen_subcommand_from groups" -l explain -x -a "(stackctl groups 2>/dev/null | awk 'NR > 1 {print \$4}')"
complete -c stackctl -n "__fish_seen_subcommand_from list" -l crashes -l hangs
complete -c stackctl -n "__fish_seen_subcommand_from list" -l since -l limit -x
complete -c stackctl -n "__fish_seen_subcommand_from ps" -s w -l wide
complete -c stackctl -n "__fish_seen_subcommand_from ps" -l watch
complete -c stackctl -n "__fish_seen_subcommand_from top" -l once
complete -c stackctl -n "__fish_seen_subcommand_from explain" -a "(stackctl explain 2>/dev/null | awk 'NR > 1 {print \$1}')"
complete -c stackctl -n "__fish_seen_subcommand_from help" -a "@COMMANDS@"
complete -c stackctl -n "__fish_seen_subcommand_from dump" -l tree
complete -c stackctl -n "__fish_seen_subcommand_from dump top" -l every -x
complete -c stackctl -n "__fish_seen_subcommand_from dump" -l samples -l pid -x
complete -c stackctl -s o -l output -x -a "text json"
complete -c stackctl -s f -l format -x -a "text json folded"
complete -c stackctl -n "__fish_seen_subcommand_from export" -s f -l format -x -a "pprof speedscope minidump"
)sh";

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at; (at = text.find(from)) != std::string::npos;) text.replace(at, from.size(), to);
  return text;
}

std::string Joined(const std::string& separator) {
  std::string text;
  for (const std::string& name : CommandNames()) text += (text.empty() ? "" : separator) + name;
  return text;
}

}  // namespace

int RunCompletion(Api&, const Options& options) {
  std::string script = options.name == "bash" ? kBash : options.name == "zsh" ? kZsh : kFish;
  script = Replaced(script, "@COMMANDS_PATTERN@", Joined("|"));
  script = Replaced(script, "@COMMANDS@", Joined(" "));
  return Print(script) ? kOk : kFailure;
}

}  // namespace stackd
